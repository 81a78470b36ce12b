"""Recipes: the plan of a whole network with its layers and variants."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib.metadata import version

from sartor.codegen.analysis.operation_count import operation_count
from sartor.codegen.digest import digest
from sartor.codegen.ir.graph import ENTRY, LayerGraph
from sartor.codegen.ir.layer import Layer, ValueRef
from sartor.codegen.ir.layouts import CHANNELS_LAST
from sartor.codegen.ir.schema import QUANTISED, Schema
from sartor.codegen.ir.variants.descriptor import dtype_in
from sartor.codegen.ir.variants.routine import Variant, dtype_of
from sartor.codegen.linking.stitching import PARAMETER_SCOPE
from sartor.codegen.routines import LOW_PRECISION
from sartor.config import CompileConfig, Precision
from sartor.dialect_passes.split_layers import apply_choices
from sartor.errors import InfeasibleError, UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.value_ranges import Values, named_ranges
from sartor.precision.eligibility import eligibility
from sartor.runtime.manifest import Manifest
from sartor.tuning.calibration.quantised_range import QuantisedRange
from sartor.tuning.cost_tables.conversions import adapts_between
from sartor.tuning.cost_tables.fused_choices import chosen_layers
from sartor.tuning.cost_tables.in_network import InNetworkTimes
from sartor.tuning.cost_tables.tables import Tables, adapt_seconds
from sartor.tuning.measuring.benchmark_case import symbol_of
from sartor.tuning.records.plan import AdaptChoice, LayerChoice, Plan
from sartor.tuning.records.signature import value_spec
from sartor.tuning.selection.problem.limits import Amounts
from sartor.tuning.selection.problem.selection import Selection

UNSPLIT_SOLVER = "none"


@dataclass(frozen=True)
class Recipe:
    """A plan with the code that it names.

    Attributes:
        plan: without measured times, which are not known before the module, which contains the plan, is compiled.
        graph: the layers, with fused layers in place of their members.
        variants: by layer name; empty for the unsplit model.
        needed: amount of each quantity by the tables with which it was selected; empty if it was not selected.
    """

    plan: Plan
    graph: LayerGraph
    variants: Mapping[str, Variant]
    needed: Amounts = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """Hash of the plan, which the module contains, and of the code that the plan names."""
        code = (f"{layer} {variant.implementation.digest}" for layer, variant in sorted(self.variants.items()))
        return digest(json.dumps(self.plan.to_json(), sort_keys=True), *code)

    def is_same_as(self, other: Recipe) -> bool:
        """Whether both have the same choices for all layers."""
        return self.plan.unsplit == other.plan.unsplit and self._names() == other._names()

    def _names(self) -> dict[str, str]:
        return {layer: variant.descriptor for layer, variant in self.variants.items()}

    def manifest(self, imported: ImportedModel, config: CompileConfig) -> str:
        """The manifest of the module, as JSON."""
        external = {} if config.external_weights is None else {PARAMETER_SCOPE: config.external_weights.name}
        return Manifest(
            model=imported.path.name,
            model_sha256=imported.sha256,
            entry=ENTRY,
            inputs=tuple(map(value_spec, imported.graph.inputs)),
            outputs=tuple(map(value_spec, imported.graph.outputs)),
            devices=(config.target.device,),
            levels=(config.target.architecture,),
            sartor_version=version("sartor"),
            iree_version=version("iree-base-compiler"),
            plan=self.plan.to_json(),
            parameters=external,
            features=tuple(sorted({need for each in self.variants.values() for need in each.implementation.needs})),
        ).to_json()


def versions() -> dict[str, str]:
    """The versions of Sartor and IREE; a plan is valid only with the same."""
    return {name: version(name) for name in ("sartor", "iree-base-compiler")}


def split_recipe(imported: ImportedModel, tables: Tables, selection: Selection, config: CompileConfig) -> Recipe:
    """The recipe of a selection, with the times the tables predict."""
    graph, variants = chosen_layers(imported.graph, tables.variants, selection)
    plan = replace(
        _empty_plan(imported, config),
        solver=selection.solver,
        optimal=selection.optimal,
        gap=_gap(selection),
        peak=tables.peak,
    )
    plan = replace(plan, ranges=named_ranges(_used_ranges(imported, graph, variants)))
    recipe = Recipe(plan, graph, variants)
    return replace(recipe, plan=timed_plan(recipe, tables))


def _used_ranges(
    imported: ImportedModel, graph: LayerGraph, variants: Mapping[str, Variant]
) -> dict[ValueRef, QuantisedRange]:
    """Ranges of the values that the layers quantise, in the order of their first use."""
    used = (
        ref
        for layer in graph.layers
        for each in variants[layer.name].implementation.ranges
        for ref in (Values.written(layer) if each is None else (layer.inputs[each],))
    )
    return {ref: imported.ranges[ref] for ref in used}


def _gap(selection: Selection) -> float | None:
    if selection.optimal:
        return 0.0
    return selection.cost / selection.lower_bound - 1 if selection.lower_bound > 0 else None


def timed_plan(recipe: Recipe, tables: Tables) -> Plan:
    """The plan of a split network with times predicted by the tables."""
    layers = tuple(
        LayerChoice(
            layer=layer.name,
            nodes=layer.nodes,
            task=layer.task.key,
            variant=recipe.variants[layer.name].descriptor,
            symbol=symbol_of(layer.task.key, recipe.variants[layer.name]),
            seconds=tables.seconds(layer.task.key, recipe.variants[layer.name].descriptor),
            in_place=None,
            operations=operation_count(layer.task),
            dtype=recipe.variants[layer.name].dtype,
            error=tables.sensitivity(layer, recipe.variants[layer.name]),
            saved=_saved(layer, recipe.variants[layer.name], tables),
        )
        for layer in recipe.graph.layers
    )
    device = recipe.plan.target.partition(":")[0]
    adapts = tuple(
        AdaptChoice(
            edge.producer,
            edge.consumer,
            edge.slot,
            str(kind.source),
            str(kind.target),
            kind.symbol,
            adapt_seconds(kind, tables),
            None,
        )
        for edge, kind in adapts_between(recipe.graph, recipe.variants, device)
    )
    predicted = sum(each.seconds or 0.0 for each in layers) + sum(each.seconds or 0.0 for each in adapts)
    return replace(recipe.plan, layers=layers, adapts=adapts, predicted=predicted)


def _saved(layer: Layer, variant: Variant, tables: Tables) -> float | None:
    """Seconds that a variant in a narrower type saves; None for a variant in the layer's own type."""
    key, own = layer.task.key, dtype_of(layer.task)
    taken = tables.seconds(key, variant.descriptor)
    others = [tables.seconds(key, each.descriptor) for each, _ in tables.usable(key) if each.dtype == own]
    known = [each for each in others if each is not None]
    return min(known) - taken if variant.dtype != own and taken is not None and known else None


def plan_with_network_times(plan: Plan, found: InNetworkTimes) -> Plan:
    """A plan with the times of its layers and conversions in the network."""
    seconds = {kind.symbol: taken for kind, taken in found.adapts.items()}
    layers = tuple(replace(each, in_place=found.layers.get((each.task, each.variant))) for each in plan.layers)
    adapts = tuple(replace(each, in_place=seconds.get(each.symbol)) for each in plan.adapts)
    return replace(plan, layers=layers, adapts=adapts)


def unsplit_recipe(imported: ImportedModel, config: CompileConfig, peak: float | None = None) -> Recipe:
    """The recipe of the whole model by IREE's stock lowering. A plan slower than this one is not shipped.

    Args:
        imported: the model.
        config: settings.
        peak: the machine's largest number of operations per second, if it was measured.
    """
    return Recipe(replace(_empty_plan(imported, config), unsplit=True, peak=peak), imported.graph, {})


def guessed_recipe(
    imported: ImportedModel, candidates: Mapping[str, tuple[Variant, ...]], config: CompileConfig
) -> Recipe:
    """Each layer's best guess among the variants that its pins allow, for a target that cannot be measured here.

    Raises:
        InfeasibleError: if a layer's pins allow none.
    """
    variants: dict[str, Variant] = {}
    is_eligible = eligibility(imported, config.precision)
    for layer in imported.graph.layers:
        offered = [each for each in candidates[layer.task.key] if is_eligible(layer, each)]
        allowed = [each for each in offered if all(pin.allows(layer.name, each.descriptor) for pin in config.pins)]
        if not allowed:
            names = ", ".join(each.descriptor for each in offered)
            raise InfeasibleError(f"no routine of layer '{layer.name}' fits its pins, it has {names}")
        variants[layer.name] = min(allowed, key=partial(_doubts, layer, config.precision))
    return unmeasured_recipe(imported, imported.graph, variants, config)


def unmeasured_recipe(
    imported: ImportedModel, graph: LayerGraph, variants: Mapping[str, Variant], config: CompileConfig
) -> Recipe:
    """The recipe of variants that somebody chose without measuring.

    Args:
        imported: the model.
        graph: its layers, with fused ones and children where these were chosen.
        variants: of each layer, by name.
        config: settings.
    """
    layers = tuple(
        LayerChoice(
            layer=layer.name,
            nodes=layer.nodes,
            task=layer.task.key,
            variant=variants[layer.name].descriptor,
            symbol=symbol_of(layer.task.key, variants[layer.name]),
            seconds=None,
            in_place=None,
            operations=operation_count(layer.task),
            dtype=variants[layer.name].dtype,
            error=None,
            saved=None,
        )
        for layer in graph.layers
    )
    adapts = tuple(
        AdaptChoice(
            edge.producer, edge.consumer, edge.slot, str(kind.source), str(kind.target), kind.symbol, None, None
        )
        for edge, kind in adapts_between(graph, variants, config.target.device)
    )
    ranges = named_ranges(_used_ranges(imported, graph, variants))
    plan = replace(_empty_plan(imported, config), layers=layers, adapts=adapts, ranges=ranges)
    return Recipe(plan, graph, variants)


def _doubts(layer: Layer, precision: Precision, variant: Variant) -> tuple[bool, bool, bool]:
    """Sort key of guesses, best first: kernels, then kernels that multiply integers by an instruction, then code that
    leaves channels last, as kernels do.

    If 8 bits are allowed, integers may round values that the model does not round. As that is not measured here, the
    model's own types are the better guess.

    A GPU has no kernels: all keys are equal there, and the first variant is the best guess.
    """
    code = variant.implementation
    if variant.device != "cpu":
        return False, False, False
    is_exact = QUANTISED not in precision.types
    by_integers = is_exact and variant.dtype == QUANTISED and variant.traits.instruction is not None
    is_channels_last = code.output == Schema("cpu", layer.task.results[0].dtype, CHANNELS_LAST)
    return code.kernel is None, not by_integers, not is_channels_last


def _empty_plan(imported: ImportedModel, config: CompileConfig) -> Plan:
    return Plan(
        model_sha256=imported.sha256,
        target=str(config.target),
        threads=config.threads,
        unsplit=False,
        layers=(),
        adapts=(),
        objective=config.objective.value,
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
    )


def check_plan(plan: Plan, config: CompileConfig) -> None:
    """Make sure that a plan can be built with these settings, whatever its model is.

    Raises:
        UsageError: if it was made for another target or version.
    """
    if plan.target != str(config.target):
        raise UsageError(
            f"the plan is for another target: {plan.target}, not {config.target}; pass {_target_options(plan)}"
        )
    _check_same("version", plan.versions, versions())


def _check_same(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise UsageError(f"the plan is for another {what}: it says {found}, this is {wanted}; tune again")


def recipe_of_plan(
    plan: Plan, imported: ImportedModel, candidates: Mapping[str, tuple[Variant, ...]], config: CompileConfig
) -> Recipe:
    """The recipe that a plan records.

    Raises:
        UsageError: if the plan was made for another model, target or version.
    """
    check_plan(plan, config)
    _check_same("model", plan.model_sha256, imported.sha256)
    unmeasured = plan.unmeasured()
    if plan.unsplit:
        return Recipe(unmeasured, imported.graph, {})
    graph = apply_choices(imported.graph, {each.layer for each in plan.layers})
    return Recipe(unmeasured, graph, _variants_of(plan, graph, candidates))


def precision_of(plan: Plan) -> Precision:
    """The precision of a plan: f32, or mixed if a layer computes in a narrower type."""
    types = {dtype_in(each.variant) for each in plan.layers}
    return Precision.MIXED if types & LOW_PRECISION.keys() else Precision.F32


def _target_options(plan: Plan) -> str:
    """The command line's options for a plan's target."""
    device, _, architecture = plan.target.partition(":")
    return f"--target {device} {'--cpu' if device == 'cpu' else '--arch'} {architecture}"


def _variants_of(plan: Plan, graph: LayerGraph, candidates: Mapping[str, tuple[Variant, ...]]) -> dict[str, Variant]:
    chosen = {each.layer: each.variant for each in plan.layers}
    variants: dict[str, Variant] = {}
    for layer in graph.layers:
        by_name = {each.descriptor: each for each in candidates[layer.task.key]}
        name = chosen.get(layer.name)
        if name not in by_name:
            raise UsageError(f"the plan has no routine for layer '{layer.name}' that this version offers; tune again")
        variants[layer.name] = by_name[name]
    return variants
