"""Tests of the comparison of predicted times with those in place."""

from __future__ import annotations

from dataclasses import replace

from sartor.cli.tables.in_network_table import Row, in_network_json, in_network_rows
from sartor.runtime.dispatch_statistics import Dispatch, DispatchStatistics
from sartor.tuning.records.plan import AdaptChoice, LayerChoice
from tests.plugin.planning.plans import PLAN as NO_LAYERS


def layer(name: str, symbol: str, seconds: float | None) -> LayerChoice:
    return LayerChoice(name, (name,), "task", "cpu:f32/conv2d.stock", symbol, seconds, None, 0, "f32", None, None)


PLAN = replace(
    NO_LAYERS,
    layers=(layer("one", "sa", 1e-4), layer("two", "sb", None), layer("three", "sa", 1e-4), layer("none", "sd", 1e-4)),
    adapts=(AdaptChoice("one", "two", 0, "cpu:f32@nchw", "cpu:f32@nhwc", "sc", 1e-5, None),),
    predicted=3e-4,
)


def test_layers_with_the_same_code_share_a_row() -> None:
    dispatches = (
        Dispatch("sa_kernel", 2, 3e-4),
        Dispatch("sb_dispatch_0", 1, 2e-4),
        Dispatch("sc_dispatch_0", 1, 2e-5),
    )
    rows = in_network_rows(DispatchStatistics(1e-3, dispatches), PLAN)
    assert rows == [
        Row(("one", "three"), 1.5e-4, 1e-4),
        Row(("two",), 2e-4, None),
        Row(("one -> two",), 2e-5, 1e-5),
    ]
    assert in_network_json(rows)[0] == {"names": ("one", "three"), "seconds": 1.5e-4, "predicted": 1e-4}
