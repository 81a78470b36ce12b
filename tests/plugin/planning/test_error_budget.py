"""The budget: plans are simulated and selected again until they keep to it and use it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import onnx
import pytest

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Variant
from sartor.codegen.routines import routines_for
from sartor.config import CompileConfig, Precision
from sartor.dialect_passes.annotate import annotate
from sartor.errors import InfeasibleError
from sartor.frontend.import_job import run_front
from sartor.frontend.imported_model import Front
from sartor.planning.error_budget import ErrorBudget, assess
from sartor.planning.recipe import Recipe
from sartor.planning.simulated_error import EXPECTED
from sartor.precision.sensitivities import Pair, Sensitivities
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.errors.error_measures import ErrorMeasure
from sartor.tuning.records.plan import Plan
from sartor.tuning.selection.problem.limits import UNLIMITED, Limits, Quantity
from tests.codegen.routines.layer_cases import Cases
from tests.plugin.planning.selecting_fakes import measurement

PLAN = Plan(
    model_sha256="0",
    target="cpu:host",
    threads=1,
    unsplit=False,
    layers=(),
    adapts=(),
    objective="latency",
    solver="dprs",
    optimal=True,
    gap=0.0,
    predicted=1.0,
    measured=None,
    baseline=None,
    memory=None,
    first=None,
    peak=None,
    versions={},
)
TABLES = Tables({}, {})
ALLOWED = 1e-2


@dataclass
class Solver:
    """A network of which any share may be narrow: the larger the sum of errors, the less time it takes.

    Attributes:
        most: sum of the fastest plan.
        least: sum of the most exact one.
        bounds: under which plans were asked for.
    """

    most: float = 1e-4
    least: float = 0.0
    bounds: list[float | None] = field(default_factory=list)

    def within(self, tables: Tables, limits: Limits) -> tuple[list[Recipe], Tables]:
        self.bounds.append(limits.error)
        needed = self.most if limits.error is None else min(limits.error * 0.98, self.most)
        if needed < self.least:
            raise InfeasibleError("nothing is left")
        return [self._recipe(needed)], tables

    def most_exact(self, tables: Tables) -> tuple[list[Recipe], Tables]:
        return [self._recipe(self.least)], tables

    def _recipe(self, needed: float) -> Recipe:
        plan = replace(PLAN, predicted=1.0 - needed)
        return Recipe(plan, LayerGraph((), (), ()), {}, {Quantity.ERROR: needed})


def budget(simulate: Callable[[float], float], **settings: Any) -> ErrorBudget:
    config = CompileConfig(precision=Precision.BF16, max_error=ALLOWED, **settings)
    return ErrorBudget(config, lambda recipe, tables: simulate(recipe.needed[Quantity.ERROR]))


def select(found: ErrorBudget, solver: Solver, limits: Limits = UNLIMITED) -> float:
    recipes, _ = found.select(TABLES, limits, solver.within, solver.most_exact)
    return float(recipes[0].needed[Quantity.ERROR])


@pytest.mark.parametrize("factor", [0.1, 0.9])
def test_a_plan_within_the_budget_is_not_bounded(factor: float) -> None:
    solver = Solver(most=ALLOWED**2)
    assert select(budget(lambda needed: factor * needed**0.5), solver) == solver.most
    assert solver.bounds == [None]


@pytest.mark.parametrize("factor", [1.2, 3.0, 50.0])
@pytest.mark.parametrize("exponent", [0.3, 0.5, 1.0])
def test_the_budget_is_kept_and_used_whatever_the_model_of_errors(factor: float, exponent: float) -> None:
    def simulate(needed: float) -> float:
        return float(factor * ALLOWED * (needed / solver.most) ** exponent)

    solver = Solver()
    assert 0.8 * ALLOWED <= simulate(select(budget(simulate), solver)) <= ALLOWED
    assert len(solver.bounds) <= 6


def test_one_correction_is_enough_where_the_model_holds() -> None:
    solver = Solver()
    select(budget(lambda needed: 4 * needed**0.5), solver)
    assert len(solver.bounds) == 2
    solver = Solver()
    select(budget(lambda needed: 400 * needed, error_measure=ErrorMeasure.parse("cosine")), solver)
    assert len(solver.bounds) == 2


def test_what_was_learned_is_where_the_next_selection_begins() -> None:
    found, solver = budget(lambda needed: 4 * needed**0.5), Solver()
    first = select(found, solver)
    assert select(found, solver) == pytest.approx(first)
    assert len(solver.bounds) == 3


def test_tighter_limits_are_kept() -> None:
    assert select(budget(lambda needed: needed**0.5), Solver(), Limits(error=1e-6)) <= 1e-6


def test_where_nothing_keeps_it_the_most_exact_plan_is_left() -> None:
    solver = Solver(least=5e-5)
    assert select(budget(lambda needed: 100 * needed**0.5), solver) == solver.least
    with pytest.raises(InfeasibleError):
        select(budget(lambda needed: 0.0), Solver(least=1.0))


def test_errors_that_no_sum_explains_end() -> None:
    solver = Solver()
    assert select(budget(lambda needed: 1.0), solver) == solver.least
    assert len(solver.bounds) <= 8


@dataclass(frozen=True)
class FakeSensitivities:
    """Says that rounding, of any layers, makes the outputs err by the same."""

    config: CompileConfig
    front: Front
    error: float

    def together(self, assignment: Mapping[str, str]) -> float:
        return self.error if assignment else 0.0

    def contributions(self, pairs: Collection[Pair], *, roughly: bool = False) -> dict[Pair, float]:
        return dict.fromkeys(pairs, self.error)


def _is_winograd(variant: Variant) -> bool:
    return "winograd_dots" in variant.descriptor


@pytest.fixture(scope="module")
def convolution(tmp_path_factory: pytest.TempPathFactory) -> tuple[Front, Tables]:
    """A network that is one layer, which errs ten times as much if Winograd's method rounds to bf16 on the way."""
    path, cases = tmp_path_factory.mktemp("budget") / "convolution.onnx", Cases()
    cases.convolution("alone", (1, 64, 28, 28), 64)
    onnx.save(cases.model(), path)
    front = run_front(Path(path), {}, None)
    assert isinstance(front, Front)
    variants = annotate(front.graph, routines_for(["bf16"]), Target.create("cpu", "cooperlake")).variants
    measured = {
        key: {
            each.descriptor: replace(measurement(each.descriptor, 1e-4), error=0.02 if _is_winograd(each) else 0.002)
            for each in listed
        }
        for key, listed in variants.items()
    }
    return front, Tables(variants, measured)


@pytest.mark.parametrize(("measure", "expected"), [("relative", 0.04), ("cosine", 0.4)])
def test_what_rounds_on_the_way_counts_for_more(
    measure: str, expected: float, convolution: tuple[Front, Tables]
) -> None:
    front, tables = convolution
    config = CompileConfig(precision=Precision.BF16, max_error=0.01, error_measure=ErrorMeasure.parse(measure))
    known, found = assess(tables, cast(Sensitivities, FakeSensitivities(config, front, 0.004)))
    assert found is not None
    (layer,) = front.graph.layers
    narrow = [pair for pair in known.usable(layer.task.key) if pair[0].dtype == "bf16"]
    assert {_is_winograd(variant) for variant, _ in narrow} == {True, False}
    for variant, measured in narrow:
        everything = replace(known, passed=1.0)
        assert everything.error(layer, variant, measured) == pytest.approx(0.04 if _is_winograd(variant) else 0.004)
        simulated = found.simulate(Recipe(PLAN, front.graph, {layer.name: variant}, {}), everything)
        assert simulated == pytest.approx(expected if _is_winograd(variant) else 0.004)


@pytest.mark.parametrize(("allowed", "is_free"), [(0.002, False), (0.02, False), (0.05, True)])
def test_any_plan_may_run_only_if_the_least_exact_one_may(
    allowed: float, is_free: bool, convolution: tuple[Front, Tables]
) -> None:
    front, tables = convolution
    config = CompileConfig(precision=Precision.BF16, max_error=allowed)
    _, found = assess(tables, cast(Sensitivities, FakeSensitivities(config, front, 0.004)))
    assert found is not None
    assert found.is_free == is_free


def _learned(
    convolution: tuple[Front, Tables],
    measured: float,
    allowed: float = 0.01,
    *,
    is_winograd: bool = True,
    measure: str = "relative",
) -> float:
    """What share reaches the outputs by a plan of a layer that errs by 0.004 times 1 to 10, or once if it is exact."""
    front, tables = convolution
    kind = ErrorMeasure.parse(measure)
    config = CompileConfig(precision=Precision.BF16, max_error=allowed, error_measure=kind)
    known, found = assess(tables, cast(Sensitivities, FakeSensitivities(config, front, 0.004)))
    assert found is not None
    assert known.passed == (1.0 if found.is_free else EXPECTED)
    (layer,) = front.graph.layers
    variants = [each for each, _ in known.usable(layer.task.key) if each.dtype == "bf16"]
    chosen = next(each for each in variants if _is_winograd(each) == is_winograd)
    recipe = Recipe(PLAN, front.graph, {layer.name: chosen}, {})
    return found.learned(known, recipe, measured).passed


def test_a_plan_that_runs_shows_what_share_of_its_variants_errors_counts(convolution: tuple[Front, Tables]) -> None:
    assert _learned(convolution, 0.013) == pytest.approx(0.3)
    assert _learned(convolution, 0.003) == 0.0
    assert _learned(convolution, 0.07) == 1.0


@pytest.mark.parametrize("measured", [0.0, math.inf, math.nan])
def test_errors_that_say_nothing_show_nothing(convolution: tuple[Front, Tables], measured: float) -> None:
    assert _learned(convolution, measured) == EXPECTED


def test_measures_that_are_blind_to_small_errors_show_nothing(convolution: tuple[Front, Tables]) -> None:
    assert _learned(convolution, 0.5, measure="top1") == EXPECTED


def test_the_cosine_distance_grows_by_the_square(convolution: tuple[Front, Tables]) -> None:
    assert _learned(convolution, 0.004 * 3.2**2, measure="cosine") == pytest.approx(0.3)


def test_a_plan_that_rounds_nothing_on_the_way_shows_nothing(convolution: tuple[Front, Tables]) -> None:
    assert _learned(convolution, 0.001, is_winograd=False) == EXPECTED
    assert _learned(convolution, 0.07, is_winograd=False) == EXPECTED


def test_where_every_plan_may_run_nothing_is_learned(convolution: tuple[Front, Tables]) -> None:
    assert _learned(convolution, 0.013, allowed=0.05) == 1.0
