"""Products of integers in floats: not one sum differs from ONNX Runtime's, whatever scales and zero points."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto

from sartor.onnx_model.quantisation.quantised_values import take_out_quantisation
from sartor.reference.random_inputs import sample_inputs
from sartor.tuning.calibration.quantised_range import QuantisedRange
from tests.plugin.onnx_model.builders import Array, model, node, relative_error, run
from tests.plugin.onnx_model.conftest import Prepare
from tests.plugin.quantised_models import Dynamic, dynamic_convolution, dynamic_network, dynamic_product

UNSIGNED = QuantisedRange(1.0, -128, "int8", is_integer=True)
COLUMNS = np.arange(19) * 7


def _operators(built: ModelProto) -> Counter[str]:
    return Counter(each.op_type for each in built.graph.node)


def _taken_out(built: ModelProto, prepare: Prepare) -> tuple[ModelProto, dict[str, QuantisedRange]]:
    """The model in floats, whose integer outputs are ONNX Runtime's and whose others differ in rounding alone."""
    prepared = prepare(built).model
    ranges = take_out_quantisation(prepared)
    for seed in range(3):
        feeds = sample_inputs(built, seed)
        expected, found = run(built, feeds), run(prepared, feeds)
        for name, array in expected.items():
            bound = 0.0 if array.dtype == np.int32 else 1e-6
            assert relative_error(found[name], array) <= bound, name
    return prepared, ranges


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scales": np.linspace(1e-3, 1e-2, 19)},
        {"zero": 0},
        {"kind": "uint8"},
        {"kind": "uint8", "zero": 128},
        {"kind": "uint8", "zero": COLUMNS, "scales": np.linspace(1e-3, 1e-2, 19)},
    ],
)
def test_sums_of_a_product_are_exact(options: dict[str, Any], prepare_quickly: Prepare) -> None:
    prepared, ranges = _taken_out(dynamic_product(**options), prepare_quickly)
    found = _operators(prepared)
    assert found["MatMul"] == 1
    assert not found["MatMulInteger"] + found["DynamicQuantizeLinear"]
    (product,) = (each for each in prepared.graph.node if each.op_type == "MatMul")
    assert ranges == {product.input[0]: UNSIGNED}


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"pads": [1, 0, 2, 1]},
        {"pads": [1, 1, 1, 1], "strides": [2, 3], "dilations": [2, 1]},
        {"group": 2, "pads": [0, 2, 0, 0]},
        {"auto_pad": "SAME_LOWER"},
    ],
)
def test_sums_of_a_convolution_are_exact(attributes: dict[str, Any], prepare_quickly: Prepare) -> None:
    prepared, ranges = _taken_out(dynamic_convolution(**attributes), prepare_quickly)
    found = _operators(prepared)
    assert found["Conv"] == 1
    # Padding is the convolution's own again.
    assert not found["ConvInteger"] + found["DynamicQuantizeLinear"] + found["Pad"]
    assert list(ranges.values()) == [UNSIGNED]


@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("zero", [None, 11, "z"])
def test_what_comes_in_8_bits_is_multiplied_as_it_is(
    kind: str, zero: int | str | None, prepare_quickly: Prepare
) -> None:
    element = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8}[kind]
    d = Dynamic()
    inputs = ["x", *d.weight("w", (37, 19), "int8")]
    if isinstance(zero, int):
        d.constants["zero"] = np.full(1, zero, kind)
        inputs.append("zero")
    d.op("MatMulInteger", inputs if zero != "z" else [*inputs, "z"], "y")
    given = [("x", (5, 37), element), *([("z", (), element)] if zero == "z" else [])]
    built = model(d.nodes, given, [("y", None, TensorProto.INT32)], d.constants)
    _, ranges = _taken_out(built, prepare_quickly)
    assert list(ranges.values()) == [QuantisedRange(1.0, -128 if kind == "uint8" else 0, "int8", is_integer=True)]


def test_scales_are_weights_so_that_equal_layers_are_equal(prepare_quickly: Prepare) -> None:
    prepared, _ = _taken_out(dynamic_network(), prepare_quickly)
    found = _operators(prepared)
    assert (found["Conv"], found["MatMul"]) == (2, 2)
    # What both products read is quantised once.
    assert found["ReduceMin"] == found["ReduceMax"] == 3
    stored = {initializer.name: tuple(initializer.dims) for initializer in prepared.graph.initializer}
    scales = sorted(shape for name, shape in stored.items() if name.endswith("weight_scales"))
    assert scales == [(24,), (24,), (32, 1, 1), (32, 1, 1)]


def test_a_tensor_that_others_read_in_8_bits_is_kept(prepare_quickly: Prepare) -> None:
    built = dynamic_product()
    built.graph.output.append(model([], [], [("x_q", None, TensorProto.UINT8)]).graph.output[0])
    prepared, ranges = _taken_out(built, prepare_quickly)
    assert _operators(prepared)["DynamicQuantizeLinear"] == 1
    assert list(ranges.values()) == [UNSIGNED]


def _product_of_activations() -> ModelProto:
    nodes = [node("MatMulInteger", ["x", "w"], ["y"], name="product")]
    return model(nodes, [("x", (3, 8), TensorProto.INT8), ("w", (8, 4), TensorProto.INT8)], [_sums()])


def _zero_point_of_each_row() -> ModelProto:
    constants = {"w": _ones(8, 4), "z": np.arange(3, dtype=np.int8)}
    nodes = [node("MatMulInteger", ["x", "w", "z"], ["y"], name="product")]
    return model(nodes, [("x", (3, 8), TensorProto.INT8)], [_sums()], constants)


def _sums_beyond_floats() -> ModelProto:
    constants = {"w": _ones(1033, 4) * np.int8(127)}
    nodes = [node("MatMulInteger", ["x", "w"], ["y"], name="product")]
    return model(nodes, [("x", (3, 1033), TensorProto.INT8)], [_sums()], constants)


def _padded_before_a_valid_convolution() -> ModelProto:
    constants = {"w": _ones(4, 3, 3, 3), "z": np.int8(5), "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1])}
    nodes = [
        node("Pad", ["x", "pads", "z"], ["padded"], name="pad"),
        node("ConvInteger", ["padded", "w", "z"], ["y"], name="product", auto_pad="VALID"),
    ]
    return model(nodes, [("x", (1, 3, 6, 6), TensorProto.INT8)], [_sums()], constants)


def _sums() -> tuple[str, None, int]:
    return "y", None, TensorProto.INT32


def _ones(*shape: int) -> Array:
    return np.ones(shape, np.int8)


@pytest.mark.parametrize("make", [_product_of_activations, _zero_point_of_each_row, _sums_beyond_floats])
def test_other_products_stay_what_they_are(make: Any, prepare_quickly: Prepare) -> None:
    built = make()
    prepared = prepare_quickly(built).model
    assert take_out_quantisation(prepared) == {}
    assert _operators(prepared) == {"MatMulInteger": 1}


@pytest.mark.parametrize("depth", [516, 517])
def test_sums_are_exact_up_to_the_last_that_floats_hold(depth: int, prepare_quickly: Prepare) -> None:
    """127 times 256 times 516 is just below 2**24."""
    weight = np.concatenate([_ones(depth, 1) * np.int8(127), -_ones(depth, 1)], axis=1)
    nodes = [node("MatMulInteger", ["x", "w", "z"], ["y"], name="product")]
    built = model(nodes, [("x", (3, depth), TensorProto.UINT8)], [_sums()], {"w": weight, "z": np.uint8(255)})
    prepared = prepare_quickly(built).model
    ranges = take_out_quantisation(prepared)
    assert bool(ranges) == (depth == 516)
    feeds = {"x": np.full((3, depth), 255, np.uint8)}
    feeds["x"][1:] = np.random.default_rng(0).integers(0, 3, (2, depth))
    np.testing.assert_array_equal(run(prepared, feeds)["y"], run(built, feeds)["y"])


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.0), (1.0, 3.0), (-3.0, -1.0), (-1e-3, 40.0)])
def test_ranges_are_those_of_dynamic_quantize_linear(low: float, high: float, prepare_quickly: Prepare) -> None:
    built = dynamic_product()
    prepared = prepare_quickly(built).model
    take_out_quantisation(prepared)
    feeds = {"x": np.random.default_rng(1).uniform(low, high, (2, 5, 37)).astype(np.float32)}
    np.testing.assert_array_equal(run(prepared, feeds)["sums"], run(built, feeds)["sums"])


def test_a_pad_before_a_valid_convolution_stays(prepare_quickly: Prepare) -> None:
    prepared, _ = _taken_out(_padded_before_a_valid_convolution(), prepare_quickly)
    assert _operators(prepared)["Pad"] == 1
