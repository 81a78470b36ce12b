"""The recipe of a network for a target that cannot be measured here: the best guess of each layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.layouts import CHANNELS_LAST
from sartor.codegen.ir.schema import QUANTISED, Schema
from sartor.codegen.ir.variants.routine import Variant
from sartor.devices import CPU, is_cpu
from sartor.errors import InfeasibleError, UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.value_ranges import named_ranges
from sartor.planning.recipe import Recipe, adapt_choice, empty_plan, layer_choice, used_ranges
from sartor.policies import PlanPolicy, Precision
from sartor.precision.eligibility import eligibility
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.transfers.conversions import adapts_between


def check_predictable(policy: PlanPolicy, *, wants_front: bool = False) -> None:
    """Make sure that what is asked for can be had where the target is not measured.

    Args:
        policy: target, objective and limits.
        wants_front: whether a Pareto front is asked for.

    Raises:
        UsageError: if not.
    """
    why = f"this machine does not run {policy.target} code"
    if wants_front:
        raise UsageError(f"{why}, so there are no plans to compare by what they need; leave --pareto out")
    if policy.target.has_models:
        return
    if policy.limits.memory is not None:
        raise UsageError(f"{why}, and what its code needs of memory is not known; leave --memory-limit out")
    if policy.objective is not Objective.LATENCY:
        raise UsageError(f"{why}, and what its code needs is not known; leave --objective {policy.objective} out")


def guessed_recipe(
    imported: ImportedModel, candidates: Mapping[str, tuple[Variant, ...]], policy: PlanPolicy
) -> Recipe:
    """Each layer's best guess among the variants that its pins allow, for a target that cannot be measured here.

    Raises:
        InfeasibleError: if a layer's pins allow none.
    """
    variants: dict[str, Variant] = {}
    is_eligible = eligibility(imported, policy.precision)
    for layer in imported.graph.layers:
        offered = [variant for variant in candidates[layer.task.key] if is_eligible(layer, variant)]
        allowed = [
            variant for variant in offered if all(pin.allows(layer.name, variant.descriptor) for pin in policy.pins)
        ]
        if not allowed:
            names = ", ".join(variant.descriptor for variant in offered)
            raise InfeasibleError(f"no routine of layer '{layer.name}' fits its pins, it has {names}")
        variants[layer.name] = min(allowed, key=partial(_doubts, layer, policy.precision))
    return unmeasured_recipe(imported, imported.graph, variants, policy)


def unmeasured_recipe(
    imported: ImportedModel, graph: LayerGraph, variants: Mapping[str, Variant], policy: PlanPolicy
) -> Recipe:
    """The recipe of variants that somebody chose without measuring.

    Args:
        imported: the model.
        graph: its layers, with fused ones and children where these were chosen.
        variants: of each layer, by name.
        policy: target and objective.
    """
    plan = replace(
        empty_plan(imported, policy),
        layers=tuple(layer_choice(layer, variants[layer.name]) for layer in graph.layers),
        adapts=tuple(adapt_choice(*edge) for edge in adapts_between(graph, variants, policy.target.device)),
        ranges=named_ranges(used_ranges(imported, graph, variants)),
    )
    return Recipe(plan, graph, variants)


def _doubts(layer: Layer, precision: Precision, variant: Variant) -> tuple[bool, bool, bool]:
    """Sort key of guesses, best first: kernels, then kernels that multiply integers by an instruction, then code that
    leaves channels last, as kernels do.

    If 8 bits are allowed, integers may round values that the model does not round. As that is not measured here, the
    model's own types are the better guess.

    A GPU has no kernels: all keys are equal there, and the first variant is the best guess.
    """
    code = variant.implementation
    if not is_cpu(variant.device):
        return False, False, False
    is_exact = not precision.quantises_values
    by_integers = is_exact and variant.dtype == QUANTISED and variant.traits.instruction is not None
    is_channels_last = code.output == Schema(CPU, layer.task.results[0].dtype, CHANNELS_LAST)
    return code.kernel is None, not by_integers, not is_channels_last
