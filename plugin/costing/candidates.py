"""The candidates of each layer: every routine is asked, and filters drop what may not run or is not worth measuring.

This is the one path on which a layer gets its candidates. Whoever drops one writes into the ledger what and why, which
``sartor routines MODEL --layer NAME`` shows.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import add
from pathlib import Path

from sartor.codegen.ir.block_packing import block_of
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.candidates import Candidates, Filter, Rejection
from sartor.codegen.ir.variants.routine import Routine
from sartor.codegen.routine_registry import check_glob, fused_routines, low_precision, routines_for
from sartor.costing.filters.shortlist import best_guesses, shortlisted, superfluous
from sartor.costing.filters.useful_views import with_useful_views
from sartor.costing.filters.within_pins import within_pins
from sartor.costing.listing import Narrow, all_of, list_candidates, never
from sartor.dialect_passes.annotate import annotated_module
from sartor.dialect_passes.dump import Dumper
from sartor.frontend.imported_model import ImportedModel
from sartor.policies import PlanPolicy, Precision, Search
from sartor.precision.eligibility import eligible_candidates, eligible_routines
from sartor.tuning.search.workgroups import fewer_workgroups
from sartor.tuning.selection.problem.limits import Quantity

# Tilings of a routine that are measured by a software driver, which compiles each kernel for half a second.
_GUESSES = 2


def find_candidates(
    imported: ImportedModel,
    policy: PlanPolicy,
    dump: Path | None = None,
    *,
    everything: bool = True,
    narrow: Narrow = all_of,
) -> Candidates:
    """Ask routines for implementations of all tasks, on all devices of the target, and filter them.

    Args:
        imported: the model.
        policy: target, precision and pins.
        dump: where to write the module with its candidates, or None.
        everything: whether all that a plan may name is wanted; otherwise variants that no layer may run, or that are
            not worth measuring, are dropped, which takes half as long. In any case weights are in blocks as the policy
            has them.
        narrow: as for ``list_candidates``.

    Raises:
        UsageError: if no routine can ever fit a pin.
    """
    for pin in policy.pins:
        check_glob(pin.routines, f"pins '{pin}'")
    candidates = _all(imported, policy, narrow) if everything else _worthwhile(imported, policy, narrow)
    if dump is not None:
        dumper = Dumper(dump, count=len(list(dump.glob("*.mlir"))))
        dumper.write("annotate", annotated_module(imported.graph, candidates))
    return candidates


def _all(imported: ImportedModel, policy: PlanPolicy, narrow: Narrow) -> Candidates:
    asked = routines_for(dtype for dtype in low_precision() if block_of(dtype) in {None, *policy.blocks})
    listed = [
        list_candidates(imported.graph, asked, target, fused_routines(), never, fewer_workgroups, narrow)
        for target in policy.target.each
    ]
    return reduce(add, listed, _not_asked(imported, policy, asked, asked))


def _worthwhile(imported: ImportedModel, policy: PlanPolicy, narrow: Narrow) -> Candidates:
    """The candidates that a layer may run and that may win. Pins may name any that a layer may run."""
    permitted = eligible_routines(imported, policy.precision, policy.blocks)
    asked = permitted if policy.pins else _for_objective(permitted, policy)
    skip = never if policy.pins else superfluous
    listed = [
        list_candidates(imported.graph, asked, target, fused_routines(), skip, fewer_workgroups, narrow)
        for target in policy.target.each
    ]
    candidates = reduce(add, listed, _not_asked(imported, policy, permitted, asked))
    candidates = eligible_candidates(candidates, imported, policy.precision)
    if not policy.pins:
        candidates = with_useful_views(candidates, imported.graph)
    return shortlisted(candidates, imported.graph, policy.pins)


def measured_candidates(
    candidates: Candidates, imported: ImportedModel, target: Target, policy: PlanPolicy, search: Search
) -> Candidates:
    """Those of the candidates that a device measures, or that a search selects from.

    Where types are narrower, what pins rule out is measured too: its error tells how much rounding alone errs.
    """
    of_device = candidates.of_device(target.device)
    if search is Search.MODEL and target.is_software:
        of_device = best_guesses(of_device, imported.graph, policy.pins, _GUESSES)
    return within_pins(of_device, imported.graph, policy.pins) if policy.precision is Precision.F32 else of_device


def _for_objective(routines: Iterable[Routine], policy: PlanPolicy) -> tuple[Routine, ...]:
    """Routines without those that save bytes, and time only where these are read, unless bytes count."""
    if {Quantity.COLD, Quantity.MEMORY} & {*policy.quantities}:
        return tuple(routines)
    return tuple(routine for routine in routines if not routine.traits.transforms_filters)


def _not_asked(
    imported: ImportedModel, policy: PlanPolicy, permitted: Iterable[Routine], asked: Iterable[Routine]
) -> Candidates:
    """No candidates yet, and the ledger of the routines that are not asked about any layer."""
    of_precision, of_objective = frozenset(permitted), frozenset(asked)
    ledger: list[Rejection] = []
    for routine in routines_for(low_precision()):
        if routine not in of_precision:
            ledger.append(Rejection("", routine.name, _why_not_permitted(routine, policy), Filter.PRECISION))
        elif routine not in of_objective:
            reason = "it saves bytes at the cost of time, and neither cold starts nor memory count"
            ledger.append(Rejection("", routine.name, reason, Filter.OBJECTIVE))
    return Candidates(dict.fromkeys(imported.graph.tasks(), ()), tuple(ledger))


def _why_not_permitted(routine: Routine, policy: PlanPolicy) -> str:
    narrower = routine.traits.precision
    if routine.traits.needs_run_time_ranges:
        return "no value of the model has a range that is found when the model runs"
    allowed = narrower if narrower in policy.precision.types else None
    if allowed is not None and block_of(allowed) not in (None, *policy.blocks):
        return f"it rounds in blocks of {block_of(allowed)} rows, which are not chosen"
    return f"it rounds to {narrower}, which precision {policy.precision} does not allow"
