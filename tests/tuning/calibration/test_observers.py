"""Observers keep a contract and each finds the range it is meant to; 8-bit forms of ranges are exact at zero."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sartor.runtime.driver.signature import Array
from sartor.tuning.calibration.histogram import BINS, StreamingHistogram
from sartor.tuning.calibration.methods import (
    OBSERVERS,
    CalibrationMethod,
    EntropyObserver,
    MinMaxObserver,
    MseObserver,
    Observer,
    PercentileObserver,
)
from sartor.tuning.calibration.quantised_range import QuantisedRange


def _random() -> np.random.Generator:
    return np.random.default_rng(7)


def _range(observer: Observer, *arrays: Array) -> tuple[float, float]:
    for array in arrays:
        observer.observe(array)
    return observer.range()


@pytest.mark.parametrize("method", list(CalibrationMethod))
class TestContract:
    def test_nothing_seen(self, method: CalibrationMethod) -> None:
        assert OBSERVERS[method]().range() == (0.0, 0.0)
        assert _range(OBSERVERS[method](), np.empty((2, 0), np.float32)) == (0.0, 0.0)

    @pytest.mark.parametrize("constant", [0.0, 2.5, -2.5])
    def test_constant_tensors(self, method: CalibrationMethod, constant: float) -> None:
        low, high = _range(OBSERVERS[method](), np.full((3, 4), constant, np.float32))
        assert QuantisedRange.of(low, high).round(np.array([constant]))[0] == pytest.approx(constant, rel=0.01)

    def test_the_range_is_within_what_was_seen(self, method: CalibrationMethod) -> None:
        values = _random().standard_normal(20_000).astype(np.float32)
        low, high = _range(OBSERVERS[method](), values[:5], values[5:])
        assert float(values.min()) <= low < -2
        assert 2 < high <= float(values.max())

    def test_values_that_are_not_finite_do_not_count(self, method: CalibrationMethod) -> None:
        values = _random().standard_normal(500).astype(np.float32)
        special = np.array([np.nan, np.inf, -np.inf], np.float32)
        assert _range(OBSERVERS[method](), np.concatenate([values, special])) == _range(OBSERVERS[method](), values)

    def test_it_goes_on_where_it_was_pickled(self, method: CalibrationMethod) -> None:
        first, second = _random().standard_normal((2, 1000)).astype(np.float32)
        observer = OBSERVERS[method]()
        observer.observe(first)
        assert _range(pickle.loads(pickle.dumps(observer)), second) == _range(observer, second)

    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
    def test_all_real_types(self, method: CalibrationMethod, dtype: type[np.floating]) -> None:
        low, high = _range(OBSERVERS[method](), np.array([-1, 0, 0.5, 2], dtype))
        assert -1.01 <= low <= 0
        assert 1.5 < high <= 2


def test_min_max_takes_everything() -> None:
    assert _range(MinMaxObserver(), np.array([1.0, 2.0]), np.array([-5.0]), np.array([7.5])) == (-5.0, 7.5)


def test_percentile_is_that_of_the_values() -> None:
    values = _random().standard_normal((10, 10_000))
    low, high = _range(PercentileObserver(99.0), *values)
    assert low == pytest.approx(np.percentile(values, 0.5), abs=0.01)
    assert high == pytest.approx(np.percentile(values, 99.5), abs=0.01)


def test_percentile_counts_zeros() -> None:
    values = np.maximum(_random().standard_normal(100_000), 0)
    low, high = _range(PercentileObserver(90.0), values)
    assert low == pytest.approx(0.0, abs=0.01)
    assert high == pytest.approx(np.percentile(values, 95.0), abs=0.01)


def _squared_error(values: Array, low: float, high: float, symmetric: bool) -> float:
    return float(np.sum((QuantisedRange.of(low, high, symmetric=symmetric).round(values) - values) ** 2))


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("shape", ["normal", "laplace", "relu", "outliers"])
def test_mse_is_about_as_good_as_the_best_clipping(symmetric: bool, shape: str) -> None:
    random = _random()
    values = {
        "normal": random.standard_normal(50_000),
        "laplace": random.laplace(size=50_000),
        "relu": np.maximum(random.standard_normal(50_000), 0),
        "outliers": np.append(random.standard_normal(50_000), [60.0, -45.0]),
    }[shape]
    found = _squared_error(values, *_range(MseObserver(symmetric=symmetric), *np.split(values[:50_000], 5)), symmetric)
    low, high = float(values.min()), float(values.max())
    best = min(_squared_error(values[:50_000], low * s, high * s, symmetric) for s in np.linspace(0.05, 1, 96))
    if shape == "outliers":
        found = _squared_error(values, *_range(MseObserver(symmetric=symmetric), values), symmetric)
        best = min(_squared_error(values, low * s, high * s, symmetric) for s in np.linspace(0.05, 1, 96))
    assert found <= 1.05 * best


def test_entropy_clips_rare_outliers_but_not_a_uniform_distribution() -> None:
    random = _random()
    normal = np.append(random.standard_normal(200_000), 40.0)
    low, high = _range(EntropyObserver(), normal)
    assert 3 < high < 20
    assert -20 < low < -3
    uniform = random.uniform(-1, 1, 200_000)
    low, high = _range(EntropyObserver(), uniform)
    assert (low, high) == pytest.approx((-1, 1), abs=0.01)


class TestHistogram:
    def test_it_widens_to_both_sides_and_loses_nothing(self) -> None:
        histogram = StreamingHistogram()
        pieces = [np.array([0.5, 1.0, 0.0]), np.array([300.0, -2.0]), np.array([-5e6, 0.25]), np.zeros(3)]
        for piece in pieces:
            histogram.observe(piece)
        values = np.concatenate(pieces)
        assert histogram.total == values.size
        assert histogram.zeros == 4
        assert (histogram.least, histogram.most) == (-5e6, 300.0)
        assert histogram.low <= -5e6
        assert histogram.low + BINS * histogram.width >= 300.0

    def test_counts_are_those_of_the_values_after_widening(self) -> None:
        values = _random().standard_normal(4000) * np.repeat([0.01, 0.1, 1, 10], 1000)
        histogram = StreamingHistogram()
        for piece in np.split(values, 40):
            histogram.observe(piece)
        edges = histogram.low + histogram.width * np.arange(BINS + 1)
        expected, _ = np.histogram(values, edges)
        # Rounding may move what lies on an edge.
        assert np.abs(np.cumsum(histogram.counts) - np.cumsum(expected)).max() <= 2

    def test_resolution_stays_half_of_the_bins(self) -> None:
        histogram = StreamingHistogram()
        for largest in (1.0, 1000.0, 1e9):
            histogram.observe(np.array([largest, -largest / 3]))
        assert histogram.width * BINS <= 4 * (1e9 + 1e9 / 3)

    def test_quantiles_are_in_order(self) -> None:
        histogram = StreamingHistogram()
        histogram.observe(_random().standard_normal(1000))
        found = [histogram.quantile(share) for share in np.linspace(0, 1, 21)]
        assert found == sorted(found)
        assert (found[0], found[-1]) == pytest.approx((histogram.least, histogram.most), abs=2 * histogram.width)


NUMBERS = st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False)
DTYPES = st.sampled_from(["int8", "uint8"])


@given(NUMBERS, NUMBERS, DTYPES, st.booleans())
def test_values_in_range_are_within_half_a_step(one: float, other: float, dtype: str, symmetric: bool) -> None:
    low, high = sorted((one, other))
    form = QuantisedRange.of(low, high, dtype, symmetric=symmetric)
    assert form.scale > 0
    assert form.scale == np.float32(form.scale)
    values = np.linspace(low, high, 17)
    # The zero point is rounded too, by which the whole range moves; at its ends that clips up to half a step more.
    assert np.all(np.abs(form.round(values) - values) <= form.scale * 1.001)
    assert form.round(np.zeros(1))[0] == 0


@given(NUMBERS, NUMBERS, st.booleans())
def test_both_types_hold_the_same_numbers(one: float, other: float, symmetric: bool) -> None:
    low, high = sorted((one, other))
    signed, unsigned = (QuantisedRange.of(low, high, dtype, symmetric=symmetric) for dtype in ("int8", "uint8"))
    assert signed.scale == unsigned.scale
    if symmetric:
        assert (signed.zero_point, unsigned.zero_point) == (0, 128)
    else:
        assert abs(unsigned.zero_point - signed.zero_point - 128) <= 1


def test_known_forms() -> None:
    assert QuantisedRange.of(0.0, 255.0, "uint8") == QuantisedRange(1.0, 0, "uint8")
    assert QuantisedRange.of(-1.0, 254.0, "uint8") == QuantisedRange(1.0, 1, "uint8")
    assert QuantisedRange.of(-127.0, 64.0, "int8", symmetric=True) == QuantisedRange(1.0, 0, "int8")
    assert QuantisedRange.of(-127.0, 64.0, "int8", symmetric=True).limits == (-128.0, 127.0)


@pytest.mark.parametrize("constant", [0.0, 3.0, -0.001, 1e-42])
@pytest.mark.parametrize("symmetric", [False, True])
def test_constant_tensors_are_nearly_exact(constant: float, symmetric: bool) -> None:
    form = QuantisedRange.of(constant, constant, symmetric=symmetric)
    assert form.round(np.array([constant]))[0] == pytest.approx(constant, rel=1e-6, abs=1e-38)


def test_halves_go_to_the_even_neighbour_and_what_is_outside_to_the_end() -> None:
    form = QuantisedRange(1.0, 0, "int8")
    assert form.round(np.array([0.5, 1.5, 2.5, 300.0, -300.0])).tolist() == [0, 2, 2, 127, -128]
