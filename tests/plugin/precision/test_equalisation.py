"""Channels of very different sizes get exponents, by which a product in 8 bits is much more exact."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto

from sartor.onnx_model.quantisation.equalised_products import products_by_tensor
from sartor.precision.equalisation import ChannelSizes, exponents_of
from tests.plugin.onnx_model.builders import FLOAT, Array, model, node

RANDOM = np.random.default_rng(7)
DEPTH, COLUMNS = 48, 20
X = RANDOM.standard_normal((64, DEPTH)).astype(np.float32)
OUTLIERS = np.ones(DEPTH, np.float32)
OUTLIERS[[3, 30]] = 50, 80
WEIGHT = RANDOM.standard_normal((DEPTH, COLUMNS)).astype(np.float32)


def _model(weight: Array) -> ModelProto:
    nodes = [node("Relu", ["x"], ["read"], name="relu"), node("MatMul", ["read", "w"], ["y"], name="product")]
    built = model(nodes, [("x", (64, DEPTH), FLOAT)], ["y"], {"w": weight})
    built.graph.value_info.extend([*model([], [("read", (64, DEPTH), FLOAT)], []).graph.input])
    return built


def _exponents(rows: Array, weight: Array) -> tuple[int, ...]:
    built, sizes = _model(weight), ChannelSizes()
    sizes.observe(rows[:32])
    sizes.observe(rows[32:])
    (nodes,) = products_by_tensor(built).values()
    return exponents_of(sizes, nodes, built)


def _in_8_bits(rows: Array, weight: Array) -> Array:
    step, scales = 2 * np.abs(rows).max() / 255, np.abs(weight).max(0) / 127
    return np.asarray((np.rint(rows / step) * step) @ (np.rint(weight / scales) * scales))


def _error(rows: Array, weight: Array, exponents: tuple[int, ...]) -> float:
    scale = np.ldexp(1.0, exponents)
    found, expected = _in_8_bits(rows / scale, weight * scale[:, np.newaxis]), rows.astype(np.float64) @ weight
    return float(np.sqrt(((found - expected) ** 2).mean() / (expected**2).mean()))


def test_outliers_move_to_the_weights() -> None:
    rows, weight = X * OUTLIERS, WEIGHT / OUTLIERS[:, np.newaxis]
    found = _exponents(rows, weight)
    assert len(found) == DEPTH
    assert min(found[3], found[30]) > max(np.delete(found, [3, 30]))
    assert _error(rows, weight, found) < 0.4 * _error(rows, weight, (0,) * DEPTH)


def test_channels_alike_stay_as_they_are() -> None:
    assert _exponents(X, WEIGHT) == ()


def test_weights_that_would_lose_bits_stay_as_they_are() -> None:
    weight = WEIGHT / OUTLIERS[:, np.newaxis]
    exponents = _exponents(X * OUTLIERS, weight)
    assert min(exponents) < 0
    weight[exponents.index(min(exponents)), 0] = np.finfo(np.float32).smallest_subnormal
    assert _exponents(X * OUTLIERS, weight) == ()


def test_weights_and_values_that_are_no_numbers_do_not_count() -> None:
    rows, weight = X * OUTLIERS, WEIGHT / OUTLIERS[:, np.newaxis]
    rows[0, 0], rows[1, 1] = np.nan, np.inf
    assert len(_exponents(rows, weight)) == DEPTH
    weight[0, 0] = np.inf
    assert _exponents(rows, weight) == ()
    assert _exponents(np.zeros_like(rows), WEIGHT) == ()
