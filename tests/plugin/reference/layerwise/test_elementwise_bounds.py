"""Bounds behind elementwise operators are as wide as what rounding changes in their results, and hardly wider."""

from __future__ import annotations

import numpy as np
import pytest

from sartor.reference.layerwise.layer_check import Claim, LayerCheck
from sartor.reference.layerwise.node_bounds import bounded_outputs
from tests.plugin.onnx_model.builders import FLOAT, model, node, weights


def test_a_chain_of_elementwise_operators_leaves_bounds_as_narrow_as_its_derivative_does() -> None:
    constants = {"w": weights(384, 8), "r": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)}
    gelu = [
        node("Div", ["p", "r"], ["d"]),
        node("Erf", ["d"], ["e"]),
        node("Add", ["e", "one"], ["a"]),
        node("Mul", ["p", "a"], ["m"]),
        node("Mul", ["m", "half"], ["y"]),
    ]
    built = model([node("MatMul", ["x", "w"], ["p"]), *gelu], [("x", (64, 384), FLOAT)], ["p", "y"], constants)
    found = bounded_outputs(built, {"x": np.random.default_rng(3).normal(size=(64, 384)).astype(np.float32)})
    product, result = found["p"].error, found["y"].error
    assert product is not None
    assert result is not None
    # GELU's derivative is at most 1.13; each function adds some roundings of its largest result.
    assert np.max(result) <= 1.25 * np.max(product)
    # The bound is none that a result could exceed: GELU changes as much as its operand where that is large.
    assert np.max(result) >= 0.9 * np.max(product)


@pytest.mark.parametrize("kind", ["Mul", "Div"])
def test_what_is_multiplied_by_its_own_function_may_fall_to_either_side_of_a_tie(kind: str) -> None:
    """Both operands then change, and together by more than each alone."""
    constants = {"s": np.float32(0.25), "z": np.int8(0), "one": np.float32(1)}
    nodes = [
        node("GlobalAveragePool", ["x"], ["m"]),
        node("QuantizeLinear", ["m", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("Sigmoid", ["d"], ["g"]),
        node(kind, ["d", "g"], ["y"]),
    ]
    built = model(nodes, [("x", (1, 2, 2, 2), FLOAT)], ["y"], constants)
    # Means of half a step, a tie, and of minus half a step.
    x = np.array([[0, 0.25, 0, 0.25], [0, -0.25, 0, -0.25]], np.float32).reshape(1, 2, 2, 2)
    check = LayerCheck(built, {"y": Claim("layer")})

    def wrong(numbers: list[float]) -> int:
        rounded = np.array(numbers, np.float32).reshape(1, 2, 1, 1)
        gate = 1 / (1 + np.exp(-rounded))
        found = check({"x": x}, {"y": rounded * gate if kind == "Mul" else rounded / gate})
        return sum(tensor.wrong for tensor in found.wrong)

    assert wrong([0, 0]) == wrong([0.25, 0]) == wrong([0, -0.25]) == wrong([0.25, -0.25]) == 0
    assert wrong([0.5, 0]) == wrong([0, -0.5]) == 1
