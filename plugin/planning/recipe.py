"""Recipes: the plan of a whole network with its layers and variants."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version

from sartor.codegen.analysis.operation_count import operation_count
from sartor.codegen.digest import digest
from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import ENTRY, Layer, NetworkValue, ValueRef
from sartor.codegen.ir.states import BEFORE
from sartor.codegen.ir.variants.routine import Variant, dtype_of, implementations_of
from sartor.codegen.linking.adapts import AdaptKind
from sartor.codegen.linking.functions.entries import devices_of, entries_of
from sartor.codegen.linking.names import PARAMETER_SCOPE
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.value_ranges import Values, named_ranges
from sartor.policies import ModuleHeader, PlanPolicy
from sartor.runtime.files.open_sizes import GivenSize
from sartor.runtime.manifest import (
    CACHES_FORMAT,
    COUNTED_FORMAT,
    GIVEN_FORMAT,
    MANIFEST_FORMAT,
    NOISE_FORMAT,
    OPEN_FORMAT,
    SHIFTED_FORMAT,
    STATES_FORMAT,
    SUMS_FORMAT,
    Manifest,
)
from sartor.tuning.calibration.quantised_range import QuantisedRange
from sartor.tuning.cost_tables.fused_choices import chosen_layers
from sartor.tuning.cost_tables.in_network import InNetworkTimes
from sartor.tuning.cost_tables.tables import Tables, adapt_seconds, local_seconds
from sartor.tuning.measuring.benchmark_case import symbol_of
from sartor.tuning.networks.segments import segments_of
from sartor.tuning.records.network import network_of
from sartor.tuning.records.plan import AdaptChoice, LayerChoice, Plan
from sartor.tuning.records.signature import given_sizes, open_sizes, value_spec
from sartor.tuning.selection.problem.limits import Amounts, Quantity
from sartor.tuning.selection.problem.problem import Edge, Value
from sartor.tuning.selection.problem.selection import Selection
from sartor.tuning.transfers.conversions import adapts_between

UNSPLIT_SOLVER = "none"
# The digits of a hundred layers' times differ in number by some tens.
_MANIFEST_STEP = 1024


@dataclass(frozen=True)
class Recipe:
    """A plan with the code that it names.

    Attributes:
        plan: without measured times, which are not known before the module, which contains the plan, is compiled.
        graph: the layers, with fused layers in place of their members.
        variants: by layer name; empty for the unsplit model.
        needed: amount of each quantity by the tables with which it was selected; empty if it was not selected.
        memory: bytes that IREE plans for the module, weights included; None if it was not asked.
        overlapped: seconds of the first inference by these tables, if reading and executing overlap; None if it was not
            selected.
    """

    plan: Plan
    graph: LayerGraph
    variants: Mapping[str, Variant]
    needed: Amounts = field(default_factory=dict)
    memory: int | None = None
    overlapped: float | None = None

    @property
    def amounts(self) -> Amounts:
        """The amounts of all quantities, with the memory that IREE plans where that is known."""
        return self.needed if self.memory is None else {**self.needed, Quantity.MEMORY: float(self.memory)}

    @property
    def home(self) -> str:
        """The device of the network's inputs and outputs."""
        return self.plan.target.partition(":")[0]

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices of the layers, the one of inputs and outputs first if it is among them."""
        return devices_of(implementations_of(self.variants), self.home)

    @cached_property
    def digest(self) -> str:
        """Hash of the plan, which the module contains, and of the code that the plan names."""
        code = (f"{layer} {variant.implementation.digest}" for layer, variant in sorted(self.variants.items()))
        return digest(json.dumps(self.plan.to_json(), sort_keys=True), *code)

    def is_same_as(self, other: Recipe) -> bool:
        """Whether both have the same choices for all layers."""
        return self.plan.unsplit == other.plan.unsplit and self._names() == other._names()

    def differs_in_times_only(self, other: Recipe) -> bool:
        """Whether modules of both differ in their manifests only, in what was predicted or measured."""
        return self.is_same_as(other) and self.plan.ranges == other.plan.ranges

    def changes_from(self, other: Recipe) -> dict[str, str]:
        """The variants of layers that ``other`` computes by another variant, or does not have."""
        theirs = other._names()
        return {layer: name for layer, name in self._names().items() if theirs.get(layer) != name}

    def _names(self) -> dict[str, str]:
        return {layer: variant.descriptor for layer, variant in self.variants.items()}

    def manifest(self, imported: ImportedModel, header: ModuleHeader) -> str:
        """The manifest of the module, as JSON, which blanks fill up to a multiple of some length.

        So equal code with other predicted times nearly always has a manifest of the same length, which can be replaced.
        """
        external = {} if header.external_weights is None else {PARAMETER_SCOPE: header.external_weights.name}
        code = implementations_of(self.variants)
        devices, entries = self.devices, entries_of(self.graph, code, self.home)
        segments = segments_of(entries, devices[0], self.graph.outputs) if len(devices) > 1 else ()
        inputs, outputs = callers_values(imported)
        text = Manifest(
            model=imported.path.name,
            model_sha256=imported.sha256,
            entry=ENTRY,
            inputs=tuple(map(value_spec, inputs)),
            outputs=tuple(map(value_spec, outputs)),
            devices=devices,
            levels=tuple(header.target.of(device).architecture for device in devices),
            sartor_version=version("sartor"),
            iree_version=version("iree-base-compiler"),
            plan=self.plan.to_json(),
            parameters=external,
            bound=imported.bound,
            noise=imported.noise,
            features=tuple(sorted({need for implementation in code.values() for need in implementation.needs})),
            segments=segments,
            network=network_of(self.graph, self.variants, self.home).to_json(),
            sizes=open_sizes(inputs),
            given=_given_sizes(imported),
            states=imported.states,
            caches=imported.caches,
            format=_format(imported),
        ).to_json()
        return text.ljust(-(-len(text) // _MANIFEST_STEP) * _MANIFEST_STEP)


def callers_values(imported: ImportedModel) -> tuple[tuple[NetworkValue, ...], tuple[NetworkValue, ...]]:
    """The inputs and outputs that callers give and get."""
    inputs, outputs, computed = imported.graph.inputs, imported.graph.outputs, imported.computed
    if computed is None:
        return inputs, outputs
    return (
        tuple(value for value in inputs if value.name != computed.unread),
        tuple(value for value in outputs if value.name != computed.output),
    )


def _given_sizes(imported: ImportedModel) -> tuple[GivenSize, ...]:
    """The sizes of outputs that follow from what callers choose, not from what a layer computes."""
    computed = "" if imported.computed is None else imported.computed.name
    sizes = given_sizes(callers_values(imported)[1])
    return tuple(size for size in sizes if computed not in size.sizes)


def _format(imported: ImportedModel) -> int:
    """The oldest format of manifests that describes the module."""
    sizes = open_sizes(callers_values(imported)[0])
    if any(place.besides for size in sizes for place in size.places):
        return SUMS_FORMAT
    if _given_sizes(imported):
        return GIVEN_FORMAT
    # The newest one: none before it has offsets, whatever else the module needs.
    if any(place.offset for size in sizes for place in size.places):
        return SHIFTED_FORMAT
    if imported.caches:
        is_counted = any(value.name == BEFORE for value in imported.graph.inputs)
        return COUNTED_FORMAT if is_counted else CACHES_FORMAT
    if imported.states:
        return STATES_FORMAT
    if imported.noise:
        return NOISE_FORMAT
    return OPEN_FORMAT if sizes else MANIFEST_FORMAT


def versions() -> dict[str, str]:
    """The versions of Sartor and IREE; a plan is valid only with the same."""
    return {name: version(name) for name in ("sartor", "iree-base-compiler")}


def split_recipe(imported: ImportedModel, tables: Tables, selection: Selection, policy: PlanPolicy) -> Recipe:
    """The recipe of a selection, with the times the tables predict."""
    graph, variants = chosen_layers(imported.graph, tables.variants, selection)
    plan = replace(
        empty_plan(imported, policy),
        solver=selection.solver,
        optimal=selection.optimal,
        gap=_gap(selection),
        peak=tables.peak,
        basis=tables.basis,
    )
    plan = replace(plan, ranges=named_ranges(used_ranges(imported, graph, variants)))
    recipe = Recipe(plan, graph, variants)
    return replace(recipe, plan=timed_plan(recipe, tables))


def used_ranges(
    imported: ImportedModel, graph: LayerGraph, variants: Mapping[str, Variant]
) -> dict[ValueRef, QuantisedRange]:
    """Ranges of the values that the layers quantise, in the order of their first use."""
    used = (
        ref
        for layer in graph.layers
        for value_range in variants[layer.name].implementation.ranges
        for ref in (Values.written(layer) if value_range is None else (layer.inputs[value_range],))
    )
    return {ref: imported.ranges[ref] for ref in used}


def _gap(selection: Selection) -> float | None:
    if selection.optimal:
        return 0.0
    return selection.cost / selection.lower_bound - 1 if selection.lower_bound > 0 else None


def timed_plan(recipe: Recipe, tables: Tables) -> Plan:
    """The plan of a split network with times predicted by the tables.

    The first reader of a converted value pays for it, the others nothing. So does the first on another device for the
    transfer, and the others there for what they convert alone.
    """
    chosen = [(layer, recipe.variants[layer.name]) for layer in recipe.graph.layers]
    layers = tuple(
        layer_choice(
            layer,
            variant,
            seconds=tables.seconds(layer.task.key, variant.descriptor),
            error=tables.sensitivity(layer, variant),
            saved=_saved(layer, variant, tables),
        )
        for layer, variant in chosen
    )
    kinds = adapts_between(recipe.graph, recipe.variants, recipe.home)
    adapts = tuple(adapt_choice(edge, kind, seconds) for edge, kind, seconds in _charged(kinds, tables))
    predicted = sum(layer.seconds or 0.0 for layer in layers) + sum(adapt.seconds or 0.0 for adapt in adapts)
    return replace(recipe.plan, layers=layers, adapts=adapts, predicted=predicted)


def _charged(kinds: Sequence[tuple[Edge, AdaptKind]], tables: Tables) -> Iterator[tuple[Edge, AdaptKind, float]]:
    """Each conversion with the seconds that it adds to those before it."""
    made: set[tuple[Value | Edge, AdaptKind]] = set()
    there: set[tuple[Value | Edge, str]] = set()
    for edge, kind in kinds:
        value = edge.value or edge
        again = (value, kind.target.device) in there
        seconds = local_seconds(kind, tables) if again else adapt_seconds(kind, tables)
        yield edge, kind, 0.0 if (value, kind) in made else seconds
        made.add((value, kind))
        if kind.crosses:
            there.add((value, kind.target.device))


def layer_choice(
    layer: Layer, variant: Variant, seconds: float | None = None, error: float | None = None, saved: float | None = None
) -> LayerChoice:
    """The record of a layer in a plan."""
    return LayerChoice(
        layer=layer.name,
        nodes=layer.nodes,
        task=layer.task.key,
        variant=variant.descriptor,
        symbol=symbol_of(layer.task.key, variant),
        seconds=seconds,
        in_place=None,
        operations=operation_count(layer.task),
        dtype=variant.dtype,
        error=error,
        saved=saved,
    )


def adapt_choice(edge: Edge, kind: AdaptKind, seconds: float | None = None) -> AdaptChoice:
    """The record of a conversion in a plan."""
    ends = (edge.producer, edge.consumer, edge.slot, str(kind.source), str(kind.target))
    return AdaptChoice(*ends, kind.symbol, seconds, None)


def _saved(layer: Layer, variant: Variant, tables: Tables) -> float | None:
    """Seconds that a variant in a narrower type saves; None for a variant in the layer's own type."""
    key, own = layer.task.key, dtype_of(layer.task)
    taken = tables.seconds(key, variant.descriptor)
    others = [tables.seconds(key, entry.descriptor) for entry, _ in tables.usable(key) if entry.dtype == own]
    known = [other for other in others if other is not None]
    return min(known) - taken if variant.dtype != own and taken is not None and known else None


def plan_with_network_times(plan: Plan, times: InNetworkTimes) -> Plan:
    """A plan with the times of its layers and conversions in the network."""
    seconds = {kind.symbol: taken for kind, taken in times.adapts.items()}
    layers = tuple(replace(layer, in_place=times.layers.get((layer.task, layer.variant))) for layer in plan.layers)
    adapts = tuple(replace(adapt, in_place=seconds.get(adapt.symbol)) for adapt in plan.adapts)
    return replace(plan, layers=layers, adapts=adapts)


def unsplit_recipe(imported: ImportedModel, policy: PlanPolicy, peak: float | None = None) -> Recipe:
    """The recipe of the whole model by IREE's stock lowering. A plan slower than this one is not shipped.

    Args:
        imported: the model.
        policy: target and objective.
        peak: the machine's largest number of operations per second, if it was measured.
    """
    return Recipe(replace(empty_plan(imported, policy), unsplit=True, peak=peak), imported.graph, {})


def empty_plan(imported: ImportedModel, policy: PlanPolicy) -> Plan:
    """A plan before anything is selected."""
    return Plan(
        model_sha256=imported.sha256,
        target=str(policy.target),
        threads=policy.target.threads,
        unsplit=False,
        layers=(),
        adapts=(),
        objective=policy.objective.value,
        solver=UNSPLIT_SOLVER,
        optimal=False,
        gap=None,
        predicted=None,
        measured=None,
        baseline=None,
        memory=None,
        first=None,
        peak=None,
        versions=versions(),
        bound={value.spec.name: value.values for value in imported.bound},
        exponents=dict(imported.exponents),
        compensated=imported.compensated,
        rows=dict(imported.rows),
        workers=policy.workers,
    )
