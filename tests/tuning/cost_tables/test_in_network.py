"""Tests of correcting tables by what layers take in place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sartor.codegen.ir.schema import Schema
from sartor.codegen.linking.adapts import AdaptKind
from sartor.runtime.dispatch_statistics import Dispatch
from sartor.tuning.cost_tables.in_network import UNKNOWN, InNetworkTimes, Symbols, corrected, scaled
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status

ADAPT = AdaptKind("tensor<1x16x8x8xf32>", Schema.parse("cpu:f32@nchw"), Schema.parse("cpu:f32@nhwc"))
OTHER = AdaptKind("tensor<1x32x8x8xf32>", Schema.parse("cpu:f32@nchw"), Schema.parse("cpu:f32@nhwc"))
SYMBOLS = Symbols({"sa": ("task a", "fast"), "sb": ("task b", "only")}, {"sc": ADAPT})


class Named:
    """As much of a variant as tables need."""

    def __init__(self, descriptor: str) -> None:
        self.descriptor = descriptor


def measured(name: str, *samples: float, status: Status = Status.OK) -> Measurement:
    key = MeasurementKey("task", name, "source", "hardware", 1, "runtime", "backend")
    return Measurement(key, status, samples, packed_bytes=7)


def tables() -> Tables:
    variants = {
        key: tuple(map(Named, names)) for key, names in {"a": ("slow", "fast", "wrong"), "b": ("only",)}.items()
    }
    results = {
        "a": {
            "slow": measured("slow", 4e-4),
            "fast": measured("fast", 2e-4),
            "wrong": measured("wrong", status=Status.CRASHED),
        },
        "b": {"only": measured("only", 1e-4)},
    }
    return Tables(variants, results, {ADAPT: 1e-5, OTHER: 3e-5})  # type: ignore[arg-type]


def test_times_are_of_one_call() -> None:
    dispatches = [
        Dispatch("sa_kernel", 4, 8e-4),
        Dispatch("sb_dispatch_0", 1, 1e-4),
        Dispatch("sb_dispatch_1", 1, 2e-4),
    ]
    found = SYMBOLS.in_network(SYMBOLS.seconds([dispatches]))
    assert found.layers == {("task a", "fast"): pytest.approx(2e-4), ("task b", "only"): pytest.approx(3e-4)}
    assert found.adapts == {}


def test_calls_that_write_over_an_activation_are_calls_of_the_same_variant() -> None:
    dispatches = [
        Dispatch("sa_kernel", 1, 3e-4),
        Dispatch("sa_over_kernel", 2, 3e-4),
        Dispatch("sb_over_kernel", 1, 1e-4),
    ]
    assert SYMBOLS.seconds([dispatches]) == pytest.approx((2e-4, 1e-4, UNKNOWN))


def test_a_piece_without_a_dispatch_of_its_own_is_unknown() -> None:
    assert SYMBOLS.names == ("sa", "sb", "sc")
    assert SYMBOLS.seconds([[Dispatch("sc_dispatch_0", 2, 6e-6)]]) == pytest.approx((UNKNOWN, UNKNOWN, 3e-6))


def test_the_variant_that_ran_gets_its_time_and_others_of_its_task_its_ratio() -> None:
    found = corrected(tables(), InNetworkTimes({("a", "fast"): 3e-4}))
    assert found.seconds("a", "fast") == pytest.approx(3e-4)
    assert found.seconds("a", "slow") == pytest.approx(6e-4)
    assert found.seconds("a", "wrong") is None
    assert found.seconds("b", "only") == pytest.approx(1e-4)
    assert found.measured["a"]["slow"].packed_bytes == 7


def test_a_variant_is_scaled_like_one_of_its_own_routine_if_there_is_one() -> None:
    names = ("cpu:f32/direct{unroll=1}", "cpu:f32/direct{unroll=2}", "cpu:i8/tiles{lines=1}", "cpu:i8/window")
    results = {"a": {name: measured(name, 1e-4) for name in names}}
    alone = Tables({"a": tuple(map(Named, names))}, results)  # type: ignore[arg-type]
    found = corrected(alone, InNetworkTimes({("a", names[0]): 1.5e-4, ("a", "cpu:i8/tiles{lines=1}"): 2.5e-4}))
    assert [found.seconds("a", name) for name in names] == pytest.approx([1.5e-4, 1.5e-4, 2.5e-4, 2e-4])


def test_a_variant_whose_workgroups_share_weights_is_not_scaled_like_one_on_a_single_core() -> None:
    """What the network does to one core's cache tells nothing of two, and of other parameters it does."""
    names = [f"cpu:f32/recurrence.{name}" for name in ("stock", "recurrent{rows=1}", "recurrent{rows=1,shares=2}")]
    beside = {name: measured(name, 1e-4) for name in names}
    beside[names[2]] = replace(beside[names[2]], baseline_samples=(1e-4,))
    alone = Tables({"a": tuple(map(Named, names))}, {"a": beside})  # type: ignore[arg-type]
    found = corrected(alone, InNetworkTimes({("a", names[1]): 1.8e-4}))
    assert [found.seconds("a", name) for name in names] == pytest.approx([1.8e-4, 1.8e-4, 1e-4])


def test_what_takes_no_time_takes_none_in_the_network() -> None:
    names = ["cpu:f32/block.stock", "cpu:f32/block.view_from_last"]
    results = {"a": {names[0]: measured(names[0], 4e-6), names[1]: measured(names[1], 1e-7)}}
    alone = Tables({"a": tuple(map(Named, names))}, results)  # type: ignore[arg-type]
    found = corrected(alone, InNetworkTimes({("a", names[0]): 9e-6}))
    assert [found.seconds("a", name) for name in names] == pytest.approx([9e-6, 1e-7])


def test_conversions_that_did_not_run_are_scaled_like_those_that_did() -> None:
    found = corrected(tables(), InNetworkTimes({}, {ADAPT: 2e-5}))
    assert found.adapts == {ADAPT: pytest.approx(2e-5), OTHER: pytest.approx(6e-5)}


def test_times_on_one_device_say_nothing_about_another() -> None:
    names = ("cpu:f32/pool.stock", "cpu:f32/pool.nhwc", "vulkan:f32/pool.stock")
    alone = {name: measured(name, 1e-4) for name in names}
    there = AdaptKind(ADAPT.tensor, Schema.parse("vulkan:f32@nchw"), Schema.parse("vulkan:f32@nhwc"))
    given = Tables({"a": tuple(map(Named, names))}, {"a": alone}, {ADAPT: 1e-5, there: 1e-5})  # type: ignore[arg-type]
    found = corrected(given, InNetworkTimes({("a", names[0]): 2e-4}, {ADAPT: 2e-5}))
    assert [found.seconds("a", name) for name in names] == pytest.approx([2e-4, 2e-4, 1e-4])
    assert found.adapts == pytest.approx({ADAPT: 2e-5, there: 1e-5})


def test_of_several_passes_the_median_counts() -> None:
    passes = [[Dispatch("sa_kernel", 2, seconds)] for seconds in (6e-4, 2e-4, 4e-4)]
    assert SYMBOLS.seconds(passes) == pytest.approx((2e-4, UNKNOWN, UNKNOWN))


def test_of_networks_that_were_timed_in_turn_the_mean_counts() -> None:
    one, other = InNetworkTimes({("a", "x"): 1.0}, {ADAPT: 1.0}), InNetworkTimes({("a", "x"): 3.0, ("b", "y"): 2.0})
    assert InNetworkTimes.mean([one, other]) == InNetworkTimes({("a", "x"): 2.0, ("b", "y"): 2.0}, {ADAPT: 1.0})


def test_later_times_replace_earlier_ones() -> None:
    both = InNetworkTimes({("a", "x"): 1.0, ("b", "y"): 2.0}) | InNetworkTimes({("a", "x"): 3.0})
    assert both.layers == {("a", "x"): 3.0, ("b", "y"): 2.0}


@pytest.mark.parametrize(
    ("alone", "pair", "expected"),
    [(4e-4, (2e-4, 3e-4), 6e-4), (4e-4, (1e-4, 9e-3), 1.2e-3), (4e-4, (1e-4, 1e-6), 2e-4), (5e-6, (1e-6, 4e-6), 8e-6)],
)
def test_ratios_are_bounded_and_short_times_are_shifted(
    alone: float, pair: tuple[float, float], expected: float
) -> None:
    assert scaled(alone, *pair) == pytest.approx(expected)
