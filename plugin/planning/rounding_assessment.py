"""Measures the error of rounding each layer, and decides whether the errors of plans must be predicted one by one."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import LayerKind
from sartor.planning.simulated_error import (
    EXPECTED,
    NARROW,
    PlanErrors,
    is_allowed,
    layers_with_members,
    most_growth,
    rounded_as,
    simulated,
)
from sartor.policies import Precision
from sartor.precision.sensitivity import Pair, Sensitivities
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.errors.error_budget import ErrorBudget
from sartor.tuning.errors.error_sum import joined

_LOG = logging.getLogger(__name__)
_MULTIPLYING = (LayerKind.CONVOLUTION, LayerKind.DEPTHWISE, LayerKind.CONTRACTION)


def narrow_pairs(graph: LayerGraph, tables: Tables) -> set[Pair]:
    """All layers with the narrower types that some usable variant computes them in, alone or in a fused kernel."""
    pairs: set[Pair] = set()
    for members, layer in layers_with_members(graph):
        types = {rounded_as(variant, layer) for variant, _ in tables.usable(layer.task.key)}
        pairs |= {(name, dtype) for name in members for dtype in types if dtype is not None}
    return pairs


def assess(
    tables: Tables, sensitivities: Sensitivities, budget: ErrorBudget, precision: Precision
) -> tuple[Tables, PlanErrors | None]:
    """Add the errors of rounding each layer to the tables; returns these, and a predictor of plans' errors.

    The predictor is None if no variant is narrower. The 8 bits of a quantised model are its own precision and do not
    round.

    Args:
        tables: costs.
        sensitivities: simulates rounding.
        budget: the error budget.
        precision: in which layers may compute.

    Raises:
        UsageError: if the samples cannot be read, or the user's measure fails on them.
        CompileError: if a worker dies.
    """
    graph = sensitivities.imported.graph
    pairs = {pair for pair in narrow_pairs(graph, tables) if is_allowed(pair[1], precision)}
    if not pairs:
        return tables, None
    # Sorted by exactness, so that each layer keeps its coarsest type.
    narrowest = dict(sorted(pairs, key=lambda pair: (NARROW.index(pair[1]), pair)))
    error = sensitivities.together(narrowest)
    free = budget.allows(error)
    _LOG.info("all layers in the narrowest types together have the error %.2g, %g is allowed", error, budget.allowed)
    rounding = sensitivities.for_pairs(pairs, roughly=free)
    known = replace(tables, rounding=_with_children(graph, _with_fusions(graph, rounding)))
    free = free and budget.allows(budget.grown(error, most_growth(graph, known, narrowest)))
    # If every plan may run, plans' errors are not used to fit the fraction, and variants' own errors count in full.
    expected = known if free else replace(known, propagated_fraction=EXPECTED)
    return expected, PlanErrors(budget, partial(simulated, sensitivities, budget, precision), is_free=free)


def _with_fusions(graph: LayerGraph, rounding: Mapping[Pair, float]) -> dict[Pair, float]:
    """Add errors of fused layers, whose members' errors are taken as independent."""
    with_fusions = dict(rounding)
    for fusion in graph.fusions:
        for dtype in NARROW:
            errors = [rounding[name, dtype] for name in fusion.members if (name, dtype) in rounding]
            if errors:
                with_fusions[fusion.layer.name, dtype] = joined(errors)
    return with_fusions


def _with_children(graph: LayerGraph, rounding: Mapping[Pair, float]) -> dict[Pair, float]:
    """Add errors of children: those that multiply share their layer's error, the others only move rounded values."""
    with_children = dict(rounding)
    for net in graph.childnets:
        multiplying = [layer.name for layer in net.graph.layers if layer.task.kind in _MULTIPLYING]
        for dtype in NARROW:
            if (net.layer, dtype) in rounding:
                share = rounding[net.layer, dtype] / math.sqrt(len(multiplying))
                own = {(layer.name, dtype): share * (layer.name in multiplying) for layer in net.graph.layers}
                with_children |= _with_children(net.graph, _with_fusions(net.graph, own))
    return with_children
