"""What a report is about: a module with its plan, its network, and all that is known about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sartor.codegen.ir.variants.candidates import Rejection
from sartor.errors import UsageError
from sartor.first_inference.sample import FirstRun
from sartor.report.evidence import Evidence
from sartor.runtime.dispatch_statistics import Dispatch
from sartor.runtime.manifest import Manifest, read_manifest
from sartor.runtime.module_facts import one_plan
from sartor.runtime.several.choice import FIRST, PlanChoice
from sartor.tuning.cost_tables.in_network import call_seconds
from sartor.tuning.records.network import Network
from sartor.tuning.records.plan import Plan


@dataclass(frozen=True)
class LayerErrors:
    """A layer's errors against the reference: in the network, the largest of its inputs, and alone; None if unknown."""

    error: float | None
    before: float | None
    alone: float | None


@dataclass(frozen=True)
class TimesOfSize:
    """What an inference with inputs of some sizes takes.

    Attributes:
        sizes: by the names of dimensions.
        seconds: the median by name of the runtime, in the same rounds.
    """

    sizes: Mapping[str, int]
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class Subject:
    """A module.

    Attributes:
        name: shown as its title.
        manifest: of the module.
        plan: with measured times where they are known.
        network: the layers; None for a module of a version that did not record them.
        evidence: measurements of candidates.
        rejections: why routines do not support layers; empty if they were not asked.
        times: seconds of each inference by name of the runtime, in the same rounds; empty if they were not measured.
        by_size: times of a module for any size; empty if they were not measured.
        errors: by layer name; empty if they were not measured.
        cold: typical first inferences, by runtime and state of its files; empty if they were not measured.
        others: facts about the module to be shown, by name.
    """

    name: str
    manifest: Manifest
    plan: Plan
    network: Network | None
    evidence: Evidence = field(default_factory=Evidence)
    rejections: Sequence[Rejection] = ()
    times: Mapping[str, Sequence[float]] = field(default_factory=dict)
    by_size: Sequence[TimesOfSize] = ()
    errors: Mapping[str, LayerErrors] = field(default_factory=dict)
    cold: Mapping[tuple[str, str], FirstRun] = field(default_factory=dict)
    others: Mapping[str, str] = field(default_factory=dict)

    @property
    def tasks(self) -> frozenset[str]:
        """The keys of all tasks."""
        recorded = [layer.task for layer in self.network.layers] if self.network else []
        return frozenset({*recorded, *(layer.task for layer in self.plan.layers)})


def open_subject(module: Path, plan: Plan | None = None, choice: PlanChoice = FIRST) -> Subject:
    """What a module's file says about it.

    Args:
        module: a .vmfb.
        plan: the plan that the same compilation saved or returned, which contains measured times.
        choice: of a file with several plans, the one that the report is about.

    Raises:
        UsageError: if the file is no module of Sartor's, or the plan is that of another module.
    """
    manifest = one_plan(read_manifest(module), choice, module)
    own = Plan.from_json(manifest.plan, f"the plan in '{module}'")
    if plan is not None and _choices(plan) != _choices(own):
        raise UsageError(
            f"the plan is not that of '{module}': it chooses other variants; save it with --save-plan again"
        )
    network = Network.from_json(manifest.network, f"the network in '{module}'") if manifest.network else None
    return Subject(module.name, manifest, plan or own, network)


def _choices(plan: Plan) -> tuple[str, bool, list[tuple[str, str]]]:
    return plan.model_sha256, plan.unsplit, [(layer.layer, layer.variant) for layer in plan.layers]


def with_dispatches(subject: Subject, dispatches: Sequence[Dispatch], seconds: float) -> Subject:
    """A subject with times of its layers in a run of the module, and of a whole inference in seconds."""
    taken = call_seconds(dispatches)
    layers = tuple(replace(layer, in_place=taken.get(layer.symbol)) for layer in subject.plan.layers)
    adapts = tuple(replace(adapt, in_place=taken.get(adapt.symbol)) for adapt in subject.plan.adapts)
    return replace(subject, plan=replace(subject.plan, layers=layers, adapts=adapts, measured=seconds))
