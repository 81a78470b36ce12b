"""Keeping plans within the error that the user allows, before they are compiled.

What single layers contribute says which of them to keep exact, but not what they make of the outputs together. So a
plan is selected within a sum of contributions, simulated as a whole in ONNX Runtime, and selected again within another
sum, until the simulated error is within what is allowed and uses most of it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import LayerKind
from sartor.config import CompileConfig
from sartor.errors import InfeasibleError
from sartor.planning.recipe import Recipe
from sartor.planning.simulated_error import (
    EXPECTED,
    NARROW,
    is_allowed,
    learned,
    most_growth,
    rounded_as,
    simulated,
    units_of,
)
from sartor.precision.sensitivities import Pair, Sensitivities
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.errors.error_budget import are_apart
from sartor.tuning.errors.error_sum import joined
from sartor.tuning.selection.problem.limits import Limits, Quantity

_LOG = logging.getLogger(__name__)
_MULTIPLYING = (LayerKind.CONVOLUTION, LayerKind.DEPTHWISE, LayerKind.CONTRACTION)
_ROUNDS = 8

Selected = tuple[list[Recipe], Tables]


def narrow_pairs(graph: LayerGraph, tables: Tables) -> set[Pair]:
    """All layers with the narrower types that some usable variant computes them in, alone or in a fused kernel."""
    pairs: set[Pair] = set()
    for members, layer in units_of(graph):
        types = {rounded_as(variant, layer) for variant, _ in tables.usable(layer.task.key)}
        pairs |= {(name, dtype) for name in members for dtype in types if dtype is not None}
    return pairs


def assess(tables: Tables, sensitivities: Sensitivities) -> tuple[Tables, ErrorBudget | None]:
    """The tables with what rounding each layer costs, and the budget that plans have to keep.

    There is none where nothing is narrower. The 8 bits of a quantised model are its own precision, and no rounding.

    Raises:
        UsageError: if the samples cannot be read, or the user's measure fails on them.
        CompileError: if a worker dies.
    """
    config, graph = sensitivities.config, sensitivities.front.graph
    pairs = {pair for pair in narrow_pairs(graph, tables) if is_allowed(pair[1], config.precision)}
    if not pairs:
        return tables, None
    # Sorted by how fine the types are, so that the coarsest of a layer's stays.
    narrowest = dict(sorted(pairs, key=lambda pair: (NARROW.index(pair[1]), pair)))
    error = sensitivities.together(narrowest)
    policy = config.error_budget
    free = policy.allows(error)
    _LOG.info("all layers in the narrowest types together err by %.2g, %g is allowed", error, policy.allowed)
    rounding = sensitivities.contributions(pairs, roughly=free)
    known = replace(tables, rounding=_with_children(graph, _with_fusions(graph, rounding)))
    free = free and policy.allows(policy.grown(error, most_growth(graph, known, narrowest)))
    # Where every plan may run, none is asked what it shows, and all that variants err alone counts.
    expected = known if free else replace(known, passed=EXPECTED)
    return expected, ErrorBudget(config, partial(simulated, sensitivities), is_free=free)


def _with_fusions(graph: LayerGraph, rounding: Mapping[Pair, float]) -> dict[Pair, float]:
    """Contributions also of fused layers: members err independently."""
    found = dict(rounding)
    for fusion in graph.fusions:
        for dtype in NARROW:
            errors = [rounding[name, dtype] for name in fusion.members if (name, dtype) in rounding]
            if errors:
                found[fusion.layer.name, dtype] = joined(errors)
    return found


def _with_children(graph: LayerGraph, rounding: Mapping[Pair, float]) -> dict[Pair, float]:
    """Contributions also of children: those that multiply share their layer's, others only move what is rounded."""
    found = dict(rounding)
    for net in graph.childnets:
        multiplying = [each.name for each in net.graph.layers if each.task.kind in _MULTIPLYING]
        for dtype in NARROW:
            if (net.layer, dtype) in rounding:
                share = rounding[net.layer, dtype] / math.sqrt(len(multiplying))
                own = {(each.name, dtype): share * (each.name in multiplying) for each in net.graph.layers}
                found |= _with_children(net.graph, _with_fusions(net.graph, own))
    return found


@dataclass(frozen=True)
class _Tried:
    """A plan.

    Attributes:
        bound: on the sum of its layers' addends, under which it was selected; None for no bound.
        needed: its sum.
        error: simulated.
    """

    bound: float | None
    needed: float
    error: float


@dataclass
class _Bracket:
    """The plans tried last on either side of the budget.

    Attributes:
        good: keeps to it.
        bad: does not.
    """

    good: _Tried | None = None
    bad: _Tried | None = None

    @property
    def floor(self) -> float:
        """A bound that is not too large."""
        return self.good.bound or 0.0 if self.good is not None else 0.0

    @property
    def ceiling(self) -> float:
        """A sum that is too large."""
        return self.bad.needed if self.bad is not None else math.inf


@dataclass
class ErrorBudget:
    """Selects plans whose simulated error is within what is allowed.

    Attributes:
        config: says what is allowed.
        simulate: the error of a plan by some tables.
        is_free: whether every plan keeps to it, as all layers in their narrowest types together do.
    """

    config: CompileConfig
    simulate: Callable[[Recipe, Tables], float]
    is_free: bool = False
    _bound: float | None = None

    @property
    def bound(self) -> float | None:
        """The sum of contributions within which the plan selected last kept to the budget; None is no bound."""
        return self._bound

    def anew(self) -> ErrorBudget:
        """The same, without what was learned."""
        return replace(self, _bound=None)

    def allows(self, error: float) -> bool:
        """Whether a plan of this simulated error is likely to keep to the budget when it runs."""
        return self.config.error_budget.allows(error)

    def sum_allowed(self, recipe: Recipe, error: float) -> float:
        """The sum that plans may have if errors grow with it as that of one plan says, which errs by too much."""
        return self.config.error_budget.sum_aimed_at(recipe.needed[Quantity.ERROR], error)

    def learned(self, tables: Tables, recipe: Recipe, measured: float) -> Tables:
        """The tables with what a plan that errs by ``measured`` shows; the same if it shows nothing, or all may run.

        Raises:
            UsageError, CompileError: as ``Sensitivities.together``.
        """
        if self.is_free:
            return tables
        found = learned(tables, recipe, self.simulate(recipe, tables), measured, self.config.error_budget)
        if found.passed != tables.passed:
            # Sums of other tables.
            self._bound = None
            _LOG.info("a plan errs by %.2g: %g of what variants err alone reaches the outputs", measured, found.passed)
        return found

    def select(
        self,
        tables: Tables,
        limits: Limits,
        within: Callable[[Tables, Limits], Selected],
        most_exact: Callable[[Tables], Selected],
    ) -> Selected:
        """The fastest plans found that are within the budget; the most exact one if none is.

        Args:
            tables: with contributions.
            limits: what plans must keep to besides; a limit on error is one on the sum.
            within: selects the best plans within limits.
            most_exact: selects the plan with the least sum.

        Raises:
            InfeasibleError: if no plan keeps to ``limits``.
        """
        if self.is_free:
            return within(tables, limits)
        bound = min((each for each in (limits.error, self._bound) if each is not None), default=None)
        best: list[Recipe] = []
        bracket = _Bracket()
        for _ in range(_ROUNDS):
            try:
                recipes, tables = within(tables, replace(limits, error=bound))
            except InfeasibleError:
                if bracket.bad is None:
                    raise
                break
            tried = self._tried(recipes[0], tables, bound)
            if self.allows(tried.error):
                bracket.good, best = tried, _faster(recipes, best)
            else:
                bracket.bad = tried
            bound = self._next(tried, bracket)
            if bound is None:
                break
        if bracket.good is not None:
            self._bound = bracket.good.bound
        return (best, tables) if best else most_exact(tables)

    def _tried(self, recipe: Recipe, tables: Tables, bound: float | None) -> _Tried:
        """What a plan that was selected under ``bound`` errs by."""
        tried = _Tried(bound, recipe.needed[Quantity.ERROR], self.simulate(recipe, tables))
        _LOG.info("a plan within %s errs by %.2g in simulation", bound, tried.error)
        return tried

    def _next(self, tried: _Tried, bracket: _Bracket) -> float | None:
        """The likeliest bound to use the budget; None if the plan tried last uses it, or no other is left to try."""
        uses = bracket.bad is None or self.config.error_budget.is_used_by(tried.error)
        if uses and self.allows(tried.error):
            return None
        floor, ceiling = bracket.floor, bracket.ceiling
        if not are_apart(floor, ceiling):
            return None
        wanted = self.config.error_budget.sum_aimed_at(tried.needed, tried.error)
        if are_apart(floor, wanted) and are_apart(wanted, ceiling):
            return wanted
        return math.sqrt(floor * ceiling) if floor else ceiling / 4


def _faster(recipes: list[Recipe], best: list[Recipe]) -> list[Recipe]:
    return recipes if not best or _seconds(recipes[0]) < _seconds(best[0]) else best


def _seconds(recipe: Recipe) -> float:
    return recipe.plan.predicted or 0.0
