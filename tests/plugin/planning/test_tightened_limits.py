"""Tighter limits for plans that did not do what the tables said."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sartor.codegen.ir.graph import LayerGraph
from sartor.config import CompileConfig
from sartor.errors import UsageError
from sartor.planning.recipe import Recipe
from sartor.planning.tightened_limits import tightened
from sartor.tuning.errors.error_sum import squared_error, total
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.selection.problem.limits import UNLIMITED, Limits, Quantity
from tests.plugin.planning.plans import PLAN

RECIPE = Recipe(PLAN, LayerGraph((), (), ()), {}, {Quantity.MEMORY: 1000.0, Quantity.ERROR: squared_error(4e-5)})


def run(status: Status, **known: Any) -> Measurement:
    key = MeasurementKey("net", "plan", "source", "hardware", 1, "runtime", "cpu")
    return Measurement(key, status, (1.0,) if status is Status.OK else (), **known)


def tighter(limits: Limits, measured: Measurement | None, config: CompileConfig) -> Limits | None:
    return tightened(limits, RECIPE, measured, config.memory_limit, config.error_budget)


def test_what_kept_to_the_limits_needs_no_others() -> None:
    config = CompileConfig(memory_limit=1000)
    assert tighter(config.planning.limits, run(Status.OK, packed_bytes=1000), config) is None
    assert tighter(config.planning.limits, run(Status.CRASHED), config) is None
    assert tighter(config.planning.limits, None, config) is None
    assert tighter(UNLIMITED, run(Status.OK, packed_bytes=9999), CompileConfig()) is None


def test_memory_beyond_the_limit_comes_off_what_was_predicted() -> None:
    config = CompileConfig(memory_limit=1000)
    assert tighter(config.planning.limits, run(Status.OK, packed_bytes=1030), config) == Limits(memory=970.0)
    assert tighter(config.planning.limits, run(Status.OK, packed_bytes=5000), config) == Limits(memory=0.0)


def test_an_error_beyond_the_limit_scales_the_budget() -> None:
    config = CompileConfig(max_error=1e-6)
    found = tighter(Limits(memory=5.0), run(Status.WRONG_RESULT, error=2e-6), config)
    assert found is not None
    assert found.memory == 5.0
    assert found.error is not None
    assert total(found.error) == pytest.approx(0.5 * 4e-5, rel=0.3)
    assert total(found.error) < 0.5 * 4e-5
    assert tighter(UNLIMITED, run(Status.WRONG_RESULT, error=math.inf), config) is None


def test_constraints_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="-1 bytes"):
        CompileConfig(memory_limit=-1)
    with pytest.raises(UsageError, match="two different ones of"):
        CompileConfig(pareto=(Quantity.MEMORY, Quantity.MEMORY))
    with pytest.raises(UsageError, match="choose auto or ilp"):
        CompileConfig(selector="greedy", memory_limit=1)
    config = CompileConfig(objective=Objective.COLD, memory_limit=1, pareto=(Quantity.ERROR, Quantity.LATENCY))
    assert config.planning.quantities == tuple(Quantity)
