"""The recipe that a plan records, and what the plan says of how it was made."""

from __future__ import annotations

from collections.abc import Mapping

from sartor.codegen.ir.block_packing import FOUR_BITS
from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.descriptor import dtype_in
from sartor.codegen.ir.variants.routine import Variant
from sartor.codegen.routine_registry import low_precision
from sartor.devices import KINDS, is_cpu
from sartor.dialect_passes.split_layers import apply_choices
from sartor.errors import UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.recipe import Recipe, versions
from sartor.policies import Precision
from sartor.runtime.driver.bound_input import Bindings, values_text
from sartor.tuning.records.plan import Plan


def check_plan(plan: Plan, target: Target, bindings: Bindings) -> None:
    """Make sure that a plan can be built for a target and with these bound inputs, whatever its model is.

    Raises:
        UsageError: if it was made for another target or version, or with other values of bound inputs.
    """
    if plan.target != str(target):
        raise UsageError(f"the plan is for another target: {plan.target}, not {target}; {_advice(plan)}")
    _check_same("version", plan.versions, versions())
    _check_bound(plan.bound, bindings)


def _check_bound(planned: Bindings, given: Bindings) -> None:
    for name, values in planned.items():
        if given.get(name) != values:
            stated = f"not to {values_text(given[name])}" if name in given else "which this compilation does not bind"
            raise UsageError(
                f"the plan was made with input '{name}' bound to {values_text(values)}, {stated}; "
                f"pass --bind {name}={values_text(values)}, or tune again"
            )
    if others := sorted(given.keys() - planned.keys()):
        raise UsageError(f"the plan was made without a bound input '{others[0]}'; leave its value out, or tune again")


def _check_same(what: str, value: object, wanted: object) -> None:
    if value != wanted:
        raise UsageError(f"the plan is for another {what}: it says {value}, this is {wanted}; tune again")


def recipe_of_plan(
    plan: Plan, imported: ImportedModel, candidates: Mapping[str, tuple[Variant, ...]], target: Target
) -> Recipe:
    """The recipe that a plan records.

    Raises:
        UsageError: if the plan was made for another model, target or version.
    """
    check_plan(plan, target, {value.spec.name: value.values for value in imported.bound})
    if plan.model_sha256 != imported.sha256:
        raise UsageError(
            f"the plan is for another model, or for other shapes of its inputs: it says {plan.model_sha256}, this is "
            f"{imported.sha256}; give --shape as it was given then, or tune again"
        )
    unmeasured = plan.unmeasured()
    if plan.unsplit:
        return Recipe(unmeasured, imported.graph, {})
    graph = apply_choices(imported.graph, {layer.layer for layer in plan.layers})
    return Recipe(unmeasured, graph, _variants_of(plan, graph, candidates))


def precision_of(plan: Plan) -> Precision:
    """The precision of a plan: f32, or mixed if a layer computes in a narrower type, weights in 4 bits apart."""
    types = {dtype_in(layer.variant) for layer in plan.layers}
    in_blocks, narrow = types & {*FOUR_BITS.values()}, types & low_precision().keys()
    if in_blocks:
        return Precision.MIXED_WEIGHTS if narrow > in_blocks else Precision.INT4_WEIGHTS
    return Precision.MIXED if narrow else Precision.F32


def blocks_of(plan: Plan) -> tuple[int, ...]:
    """Rows of a block of the weights that a plan rounds to 4 bits."""
    types = {dtype_in(layer.variant) for layer in plan.layers}
    return tuple(block for block, name in FOUR_BITS.items() if name in types)


def _advice(plan: Plan) -> str:
    """The command line's options for a plan's target, or the targets that there are."""
    parts = [part.partition(":") for part in plan.target.split(",")]
    if not all(device in KINDS and level for device, _, level in parts):
        return f"the targets are {', '.join(KINDS)}"
    levels = " ".join(f"{'--cpu' if is_cpu(device) else '--arch'} {level}" for device, _, level in parts)
    return f"pass --target {','.join(device for device, _, _ in parts)} {levels}"


def _variants_of(plan: Plan, graph: LayerGraph, candidates: Mapping[str, tuple[Variant, ...]]) -> dict[str, Variant]:
    chosen = {choice.layer: choice.variant for choice in plan.layers}
    variants: dict[str, Variant] = {}
    for layer in graph.layers:
        by_name = {variant.descriptor: variant for variant in candidates[layer.task.key]}
        name = chosen.get(layer.name)
        if name not in by_name:
            raise UsageError(f"the plan has no routine for layer '{layer.name}' that this version offers; tune again")
        variants[layer.name] = by_name[name]
    return variants
