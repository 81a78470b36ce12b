"""Predicts the error of a plan before it runs: simulates rounding, and estimates the rest from single layers.

Some variants also round inside their kernels. How much that adds to the error of a single layer is measured, but only a
fraction of it reaches the outputs, because single layers are measured on random numbers, by the worst of their results.
The fraction starts at the median of what several networks were fitted with (docs/records/precision.md, "What errors
count"). It is fitted when a plan runs.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sartor.codegen.ir.block_packing import FOUR_BITS
from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.variants.rounding import FACTOR, ROWS, STORED, WEIGHTS, rounding_of
from sartor.codegen.ir.variants.routine import Variant
from sartor.planning.recipe import Recipe
from sartor.policies import Precision
from sartor.precision.eligibility import narrower_type
from sartor.precision.fake_quantisation import BF16, F16, I8, TF32
from sartor.precision.sensitivity import Sensitivities
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.errors.error_budget import ErrorBudget, is_telling
from sartor.tuning.errors.error_sum import joined

NARROW = (TF32, F16, BF16, WEIGHTS, STORED, ROWS, FACTOR, I8, *FOUR_BITS.values())
"""Narrower types, from the most exact to the coarsest."""

EXPECTED = 0.15
"""Initial fraction of the error inside kernels that reaches the outputs, until a plan has run."""

FITTED = "a plan has the error %.2g: the fraction %g of variants' own errors reaches the outputs"
"""What is logged, with a plan's error and the fraction, when the fraction is fitted to it."""

_LOG = logging.getLogger(__name__)
_STEPS = 20


def layers_with_members(graph: LayerGraph) -> list[tuple[tuple[str, ...], Layer]]:
    """All layers that one kernel computes, fused and child layers included, with the names of the network's layers."""
    return [
        *(((layer.name,), layer) for layer in graph.layers),
        *((fusion.members, fusion.layer) for fusion in graph.fusions),
        *(((net.layer,), child) for net in graph.childnets for child in net.graph.all_layers()),
    ]


def rounded_as(variant: Variant, layer: Layer) -> str | None:
    """The type in ``NARROW`` to which a variant rounds a layer; None if it keeps the layer's own type."""
    return None if narrower_type(variant, layer) is None else rounding_of(variant)


def is_allowed(rounding: str, precision: Precision) -> bool:
    """Whether the user's precision allows rounding a layer to a type. Of layers that the model permits to round, no
    others have variants that do so."""
    if rounding == ROWS and precision is Precision.PERMITTED:
        return True
    if rounding in (I8, STORED, ROWS, FACTOR):
        return precision.quantises_values
    return precision.quantises_filters if rounding == WEIGHTS else rounding in precision.types


def assignment_of(recipe: Recipe, graph: LayerGraph) -> dict[str, str]:
    """The types to which a split network's layers are rounded, by their names before fusion.

    A layer that is split into children counts as rounded to the coarsest of their types.
    """
    names = {layer.name: members for members, layer in layers_with_members(graph)}
    types = [(names[layer.name], rounded_as(recipe.variants[layer.name], layer)) for layer in recipe.graph.layers]
    pairs = [(name, dtype) for members, dtype in types if dtype for name in members]
    return dict(sorted(pairs, key=lambda pair: NARROW.index(pair[1])))


@dataclass(frozen=True)
class PlanErrors:
    """Predicts the errors of plans before they run.

    Attributes:
        budget: the error that is allowed.
        simulate: the predicted error of a plan, by given tables.
        is_free: whether every plan keeps to the budget, as all layers in their narrowest types together do.
    """

    budget: ErrorBudget
    simulate: Callable[[Recipe, Tables], float]
    is_free: bool = False

    def with_propagated_fraction(self, tables: Tables, recipe: Recipe, measured: float) -> Tables:
        """Fit the propagated fraction to a plan's measured error; unchanged if it tells nothing, or all plans may run.

        Raises:
            UsageError, CompileError: as ``Sensitivities.together``.
        """
        if self.is_free:
            return tables
        learned = _learned(tables, recipe, self.simulate(recipe, tables), measured, self.budget)
        if learned.propagated_fraction != tables.propagated_fraction:
            _LOG.info(FITTED, measured, learned.propagated_fraction)
        return learned


def simulated(
    sensitivities: Sensitivities, budget: ErrorBudget, precision: Precision, recipe: Recipe, tables: Tables
) -> float:
    """The predicted error of a plan: simulated rounding of the layers' values, scaled by the own errors of their
    variants.

    Raises:
        UsageError, CompileError: as ``Sensitivities.together``.
    """
    assigned = assignment_of(recipe, sensitivities.imported.graph)
    allowed = {name: dtype for name, dtype in assigned.items() if is_allowed(dtype, precision)}
    error = sensitivities.together(allowed)
    return budget.grown(error, _growth_of(recipe, tables))


def _learned(tables: Tables, recipe: Recipe, error: float, measured: float, budget: ErrorBudget) -> Tables:
    """Fit the fraction of the error inside kernels that reaches the outputs, so that the prediction matches the plan.

    It becomes 1.0 if even that is too small. The tables are returned unchanged if no variant of the plan rounds inside
    its kernel, if an error is zero or infinite, or if the measure cannot see small errors.

    Args:
        tables: by which the plan was selected.
        recipe: the plan.
        error: predicted error of the plan.
        measured: its error when it ran.
        budget: has the measure of both errors.
    """
    if not (error > 0 and 0 < measured < math.inf and budget.sees_small_errors):
        return tables
    before = _growth_of(recipe, tables)
    least, most = (_growth_of(recipe, replace(tables, propagated_fraction=fraction)) for fraction in (0.0, 1.0))
    if not is_telling(least, most):
        return tables
    for step in range(_STEPS):
        changed = replace(tables, propagated_fraction=step / _STEPS)
        if budget.explains(budget.grown(error, _growth_of(recipe, changed) / before), measured):
            return changed
    return replace(tables, propagated_fraction=1.0)


def most_growth(graph: LayerGraph, tables: Tables, narrowest: Mapping[str, str]) -> float:
    """Upper bound of ``_growth_of`` over all variants, with every layer in its narrowest type."""
    keys: defaultdict[str, list[str]] = defaultdict(list)
    for members, layer in layers_with_members(graph):
        for name in members:
            keys[name].append(layer.task.key)
    rounded, computed = [], []
    for name, own in keys.items():
        known = {dtype: tables.rounding.get((name, dtype), 0.0) for dtype in NARROW}
        rounded.append(known.get(narrowest.get(name, ""), 0.0))
        computed.append(max(error * tables.most_excess(key, dtype) for dtype, error in known.items() for key in own))
    return max(_growth(rounded, computed), 1.0)


def _growth_of(recipe: Recipe, tables: Tables) -> float:
    """Ratio of the error of a plan to the error of its rounding alone."""
    rounded, computed = [], []
    for layer in recipe.graph.layers:
        variant = recipe.variants[layer.name]
        rounded.append(tables.rounded(layer, variant) or 0.0)
        computed.append(tables.sensitivity(layer, variant) or 0.0)
    return _growth(rounded, computed)


def _growth(rounded: Sequence[float], computed: Sequence[float]) -> float:
    """Ratio of the network error from the layer errors ``computed`` to that from ``rounded``; 1 without the latter."""
    plain = joined(rounded)
    return joined(computed) / plain if plain else 1.0
