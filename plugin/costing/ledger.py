"""The ledger of one layer: which variants a compilation would measure, and who dropped each of the others, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from sartor.codegen.analysis.task_facts import task_facts
from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.machines.core import WIDE
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.candidates import Candidates, Rejection
from sartor.codegen.ir.variants.routine import Variant
from sartor.codegen.mlir.kernel_machine import core_of
from sartor.costing.candidates import find_candidates, measured_candidates
from sartor.errors import UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.policies import PlanPolicy, Search
from sartor.tuning.search.features import analytic_seconds


@dataclass(frozen=True)
class Costed:
    """A candidate of a layer.

    Attributes:
        variant: the candidate.
        seconds: its time by the model of its routine, or by a bound for the layer if the routine has none.
    """

    variant: Variant
    seconds: float


@dataclass(frozen=True)
class LayerLedger:
    """What became of all routines for a layer.

    Attributes:
        layer: the layer.
        candidates: what is measured, or what a search selects from, candidate 0 of each device before its others.
        dropped: all else, in the order of the filters.
    """

    layer: Layer
    candidates: tuple[Costed, ...]
    dropped: tuple[Rejection, ...]


def ledgers_of(
    imported: ImportedModel, policy: PlanPolicy, layers: str, search: Search = Search.MODEL
) -> list[LayerLedger]:
    """The ledgers of the layers, fused layers and children whose names fit a glob.

    Raises:
        UsageError: if no name fits.
    """
    fitting = [layer for layer in imported.graph.all_layers() if fnmatchcase(layer.name, layers)]
    if not fitting:
        names = ", ".join(layer.name for layer in imported.graph.layers)
        raise UsageError(f"no layer is named '{layers}'; the model has {names}")
    candidates = find_candidates(imported, policy, everything=False)
    measured = {
        target.device: measured_candidates(candidates, imported, target, policy, search)
        for target in policy.target.each
    }
    return [
        LayerLedger(
            layer,
            tuple(_costed(layer, measured, policy.target)),
            tuple(_dropped(layer.task.key, measured)),
        )
        for layer in fitting
    ]


def _costed(layer: Layer, measured: dict[str, Candidates], target: Target) -> Iterator[Costed]:
    facts = task_facts(layer.task)
    for device, candidates in measured.items():
        own = target.of(device)
        core = core_of(own) if own.has_models else WIDE
        for variant in candidates.variants[layer.task.key]:
            yield Costed(variant, analytic_seconds(facts, variant.described, core))


def _dropped(task: str, measured: dict[str, Candidates]) -> list[Rejection]:
    """What was dropped, once: devices share all of the ledger but the end."""
    return list(
        dict.fromkeys(rejection for candidates in measured.values() for rejection in candidates.dropped_of(task))
    )
