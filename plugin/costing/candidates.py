"""The variants of each layer: every routine's implementations, without those that are not eligible or not worth it."""

from __future__ import annotations

from functools import reduce
from operator import add
from pathlib import Path

from sartor.codegen.ir.block_packing import block_of
from sartor.codegen.routine_registry import fused_routines, low_precision, routines_for
from sartor.costing.useful_views import with_useful_views
from sartor.dialect_passes.annotate import Candidates, Narrow, all_of, annotate, annotated_module, never
from sartor.dialect_passes.dump import Dumper
from sartor.frontend.imported_model import ImportedModel
from sartor.policies import PlanPolicy
from sartor.precision.eligibility import eligible_candidates, eligible_routines
from sartor.tuning.search.shortlist import is_superfluous
from sartor.tuning.search.workgroups import fewer_workgroups
from sartor.tuning.selection.problem.limits import Quantity


def find_candidates(
    imported: ImportedModel,
    policy: PlanPolicy,
    dump: Path | None = None,
    *,
    everything: bool = True,
    narrow: Narrow = all_of,
) -> Candidates:
    """Ask all routines for implementations of all tasks, on all devices of the target.

    Args:
        imported: the model.
        policy: target, precision and pins.
        dump: where to write the module with its candidates, or None.
        everything: False leaves out variants that no layer may run, which takes half as long; in any case weights are
            in blocks as the policy has them.
        narrow: as for ``annotate``.
    """
    skip = never if everything or policy.pins else is_superfluous
    if everything:
        routines = routines_for(each for each in low_precision() if block_of(each) in {None, *policy.blocks})
    else:
        routines = eligible_routines(imported, policy.precision, policy.blocks)
    if not (everything or policy.pins) and not {Quantity.COLD, Quantity.MEMORY} & {*policy.quantities}:
        # They save bytes, and time only where these are read.
        routines = tuple(each for each in routines if not each.traits.transforms_filters)
    found = [
        annotate(imported.graph, routines, each, fused_routines(), skip, fewer_workgroups, narrow)
        for each in policy.target.each
    ]
    candidates = reduce(add, found)
    if not everything:
        candidates = eligible_candidates(candidates, imported, policy.precision)
    if not (everything or policy.pins):
        candidates = with_useful_views(candidates, imported.graph)
    if dump is not None:
        dumper = Dumper(dump, count=len(list(dump.glob("*.mlir"))))
        dumper.write("annotate", annotated_module(imported.graph, candidates))
    return candidates
