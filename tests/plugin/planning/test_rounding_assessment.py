"""What rounding costs: layers that round on the way count for more, and plans that run show by how much."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import onnx
import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Variant
from sartor.codegen.routines import routines_for
from sartor.config import CompileConfig
from sartor.costing.listing import list_candidates
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.recipe import Recipe
from sartor.planning.rounding_assessment import assess
from sartor.planning.simulated_error import EXPECTED
from sartor.policies import Precision
from sartor.precision.sensitivity import Pair, Sensitivities
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.errors.error_measures import ErrorMeasure
from tests.codegen.routines.layer_cases import Cases
from tests.importing import imported_model
from tests.plugin.planning.plans import PLAN
from tests.plugin.planning.selecting_fakes import measurement


@dataclass(frozen=True)
class FakeSensitivities:
    """Reports the same output error for every assignment that rounds layers."""

    imported: ImportedModel
    error: float

    def together(self, assignment: Mapping[str, str]) -> float:
        return self.error if assignment else 0.0

    def for_pairs(self, pairs: Collection[Pair], *, roughly: bool = False) -> dict[Pair, float]:
        return dict.fromkeys(pairs, self.error)


def _is_winograd(variant: Variant) -> bool:
    return "winograd_dots" in variant.descriptor


@pytest.fixture(scope="module")
def convolution(tmp_path_factory: pytest.TempPathFactory) -> tuple[ImportedModel, Tables]:
    """A network of one convolution, whose error is ten times as large with Winograd's method in bf16."""
    path, cases = tmp_path_factory.mktemp("budget") / "convolution.onnx", Cases()
    cases.convolution("alone", (1, 64, 28, 28), 64)
    onnx.save(cases.model(), path)
    imported = imported_model(Path(path))
    variants = list_candidates(imported.graph, routines_for(["bf16"]), Target.create("cpu", "cooperlake")).variants
    measured = {
        key: {
            each.descriptor: replace(measurement(each.descriptor, 1e-4), error=0.02 if _is_winograd(each) else 0.002)
            for each in listed
        }
        for key, listed in variants.items()
    }
    return imported, Tables(variants, measured)


@pytest.mark.parametrize(("measure", "expected"), [("relative", 0.04), ("cosine", 0.4)])
def test_what_rounds_on_the_way_counts_for_more(
    measure: str, expected: float, convolution: tuple[ImportedModel, Tables]
) -> None:
    imported, tables = convolution
    config = CompileConfig(precision=Precision.BF16, max_error=0.01, error_measure=ErrorMeasure.parse(measure))
    known, found = assess(
        tables, cast(Sensitivities, FakeSensitivities(imported, 0.004)), config.error_budget, config.precision
    )
    assert found is not None
    (layer,) = imported.graph.layers
    narrow = [pair for pair in known.usable(layer.task.key) if pair[0].dtype == "bf16"]
    assert {_is_winograd(variant) for variant, _ in narrow} == {True, False}
    for variant, measured in narrow:
        everything = replace(known, propagated_fraction=1.0)
        assert everything.error(layer, variant, measured) == pytest.approx(0.04 if _is_winograd(variant) else 0.004)
        simulated = found.simulate(Recipe(PLAN, imported.graph, {layer.name: variant}, {}), everything)
        assert simulated == pytest.approx(expected if _is_winograd(variant) else 0.004)


@pytest.mark.parametrize(("allowed", "is_free"), [(0.002, False), (0.02, False), (0.05, True)])
def test_any_plan_may_run_only_if_the_least_exact_one_may(
    allowed: float, is_free: bool, convolution: tuple[ImportedModel, Tables]
) -> None:
    imported, tables = convolution
    config = CompileConfig(precision=Precision.BF16, max_error=allowed)
    _, found = assess(
        tables, cast(Sensitivities, FakeSensitivities(imported, 0.004)), config.error_budget, config.precision
    )
    assert found is not None
    assert found.is_free == is_free


def _learned(
    convolution: tuple[ImportedModel, Tables],
    measured: float,
    allowed: float = 0.01,
    *,
    is_winograd: bool = True,
    measure: str = "relative",
) -> float:
    """Return the propagated fraction after a plan of one bf16 layer ran with a measured error.

    The layer's sensitivity is 0.004, and Winograd's method multiplies its error by ten.
    """
    imported, tables = convolution
    kind = ErrorMeasure.parse(measure)
    config = CompileConfig(precision=Precision.BF16, max_error=allowed, error_measure=kind)
    known, found = assess(
        tables, cast(Sensitivities, FakeSensitivities(imported, 0.004)), config.error_budget, config.precision
    )
    assert found is not None
    assert known.propagated_fraction == (1.0 if found.is_free else EXPECTED)
    (layer,) = imported.graph.layers
    variants = [each for each, _ in known.usable(layer.task.key) if each.dtype == "bf16"]
    chosen = next(variant for variant in variants if _is_winograd(variant) == is_winograd)
    recipe = Recipe(PLAN, imported.graph, {layer.name: chosen}, {})
    return found.with_propagated_fraction(known, recipe, measured).propagated_fraction


def test_a_plan_that_runs_shows_what_share_of_its_variants_errors_counts(
    convolution: tuple[ImportedModel, Tables],
) -> None:
    assert _learned(convolution, 0.013) == pytest.approx(0.3)
    assert _learned(convolution, 0.003) == 0.0
    assert _learned(convolution, 0.07) == 1.0


@pytest.mark.parametrize("measured", [0.0, math.inf, math.nan])
def test_errors_that_say_nothing_show_nothing(convolution: tuple[ImportedModel, Tables], measured: float) -> None:
    assert _learned(convolution, measured) == EXPECTED


def test_measures_that_are_blind_to_small_errors_show_nothing(convolution: tuple[ImportedModel, Tables]) -> None:
    assert _learned(convolution, 0.5, measure="top1") == EXPECTED


def test_the_cosine_distance_grows_by_the_square(convolution: tuple[ImportedModel, Tables]) -> None:
    assert _learned(convolution, 0.004 * 3.2**2, measure="cosine") == pytest.approx(0.3)


def test_a_plan_that_rounds_nothing_on_the_way_shows_nothing(convolution: tuple[ImportedModel, Tables]) -> None:
    assert _learned(convolution, 0.001, is_winograd=False) == EXPECTED
    assert _learned(convolution, 0.07, is_winograd=False) == EXPECTED


def test_where_every_plan_may_run_nothing_is_learned(convolution: tuple[ImportedModel, Tables]) -> None:
    assert _learned(convolution, 0.013, allowed=0.05) == 1.0
