"""Selecting: conversions that do not work are done without, and mixtures compete with plans in one type."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import cast

import pytest

from sartor.codegen.routine import Variant
from sartor.codegen.routines import routines_for
from sartor.codegen.target import Target
from sartor.config import CompileConfig, Precision
from sartor.dialect_passes.annotate import annotate
from sartor.front_job import Front
from sartor.progress import silent
from sartor.recipe import Recipe
from sartor.selecting import PlanSelector
from sartor.single_precision import single_precision_plans
from sartor.tuning.measurement import Measurement, MeasurementKey, Status
from sartor.tuning.selection.limits import UNLIMITED
from sartor.tuning.tables import Tables
from sartor.tuning.tuner import Tuner
from sartor.tuning.unit import Unit

FrontOf = Callable[[str], Front]
CONFIG = CompileConfig(target=Target.create("cpu", "sapphirerapids"), threads=1, jobs=1)
FAST, SLOW = 1e-4, 1e-3


def measurement(descriptor: str, seconds: float | None) -> Measurement:
    key = MeasurementKey("task", descriptor, "source", "hardware", 1, "runtime", "cpu")
    if seconds is None:
        return Measurement(key, Status.COMPILE_FAILED, (), message="no lowering")
    return Measurement(key, Status.OK, (seconds,))


@dataclass
class FakeTuner:
    """Takes what it is told to have measured; conversions that are not to work fail."""

    works: Callable[[Unit], bool] = lambda unit: True
    is_late: bool = False

    def measure(self, units: Iterable[Unit]) -> Mapping[str, Mapping[str, Measurement]]:
        return {unit.key: {each.descriptor: self._measured(unit, each) for each in unit.variants} for unit in units}

    def _measured(self, unit: Unit, variant: Variant) -> Measurement:
        return measurement(variant.descriptor, 1e-6 if self.works(unit) else None)


def tables_of(front: Front, seconds: Callable[[str, str], float], *types: str) -> Tables:
    """All variants of a network, with the times that a function of task and descriptor gives them."""
    variants = annotate(front.graph, routines_for(types), CONFIG.target).variants
    measured = {
        key: {each.descriptor: measurement(each.descriptor, seconds(key, each.descriptor)) for each in listed}
        for key, listed in variants.items()
    }
    return Tables(variants, measured)


def selector(front: Front, tuner: FakeTuner, precision: Precision = Precision.F32) -> PlanSelector:
    return PlanSelector(front, cast(Tuner, tuner), replace(CONFIG, precision=precision), silent)


def layouts(recipe: Recipe) -> set[str]:
    return {each.implementation.output for each in recipe.variants.values()}


def _channels_last_is_fast(key: str, descriptor: str) -> float:
    return FAST if "nhwc" in descriptor else SLOW


def test_a_conversion_that_does_not_work_is_done_without(front_of: FrontOf, caplog: pytest.LogCaptureFixture) -> None:
    front = front_of("residual")
    tables = tables_of(front, _channels_last_is_fast)
    (best, *_), known = selector(front, FakeTuner()).select(tables, UNLIMITED)
    assert layouts(best) == {"nhwc"}
    assert all(math.isfinite(each) for each in known.adapts.values())
    (best, *_), known = selector(front, FakeTuner(works=lambda unit: False)).select(tables, UNLIMITED)
    assert "nhwc" not in {form for each in best.variants.values() for form in each.implementation.inputs}
    assert set(known.adapts.values()) == {math.inf}
    assert "does not work: no lowering" in caplog.text


def _by_type(**seconds: float) -> Callable[[str, str], float]:
    return lambda key, descriptor: seconds[descriptor.partition(":")[2].partition("/")[0]]


def test_plans_in_one_type_compete_where_they_come_near(front_of: FrontOf) -> None:
    front = front_of("residual")
    first = front.graph.layers[0].task.key

    def seconds(key: str, descriptor: str) -> float:
        return _by_type(f32=2.0, bf16=0.99 if key == first else 1.0, f16=1.5)(key, descriptor)

    found = selector(front, FakeTuner(), Precision.MIXED)
    mixed, tables = found.select(tables_of(front, seconds, "bf16", "f16"), UNLIMITED)
    assert {each.dtype for each in mixed[0].variants.values()} == {"bf16"}
    assert single_precision_plans(found, tables, mixed)[0] == []


def test_the_mixture_is_not_all_that_is_run(front_of: FrontOf) -> None:
    front = front_of("residual")
    first = front.graph.layers[0].task.key

    def seconds(key: str, descriptor: str) -> float:
        f16 = 0.9 if key == first else 1.1
        return _by_type(f32=2.0, bf16=1.0, f16=f16)(key, descriptor)

    found = selector(front, FakeTuner(), Precision.MIXED)
    mixed, tables = found.select(tables_of(front, seconds, "bf16", "f16"), UNLIMITED)
    assert {each.dtype for each in mixed[0].variants.values()} == {"bf16", "f16"}
    single, _ = single_precision_plans(found, tables, mixed)
    assert [{each.dtype for each in one.variants.values()} for one in single] == [{"bf16"}, {"f16"}]
