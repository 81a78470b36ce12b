"""Values and products in 8 bits: what their scales are, and factors that are moved between them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from onnx import ModelProto, TensorProto

from sartor.errors import UsageError
from sartor.onnx_model.graphs.infer import infer_shapes
from sartor.onnx_model.quantisation.equalised_products import equalise_products, is_exact, products_by_tensor
from sartor.onnx_model.quantisation.quantised_values import take_out_quantisation
from sartor.reference.random_inputs import sample_inputs
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.tuning.calibration.quantised_range import QuantisedRange
from tests.plugin.onnx_model.builders import FLOAT, Array, model, node, run
from tests.plugin.onnx_model.conftest import Prepare
from tests.plugin.quantised_models import Qdq, network, one_convolution


def _operators(built: ModelProto) -> Counter[str]:
    return Counter(each.op_type for each in built.graph.node)


def _assert_equal(built: ModelProto, prepared: ModelProto) -> None:
    """The output ``y`` is the same to the last bit."""
    for seed in range(8):
        feeds = sample_inputs(built, seed)
        np.testing.assert_array_equal(run(prepared, feeds)["y"], run(built, feeds)["y"])


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_pairs_leave_a_float_model_and_ranges(kind: str, prepare_quickly: Prepare) -> None:
    built = network(kind)
    prepared = prepare_quickly(built).model
    ranges = take_out_quantisation(prepared)
    found = _operators(prepared)
    assert found["QuantizeLinear"] == found["DequantizeLinear"] == 0
    # Averages of what fits its range already are only rounded.
    assert (found["Div"], found["Round"], found["Mul"], found["Clip"]) == (6, 6, 6, 5)
    _assert_equal(built, prepared)
    assert ranges["x_d"] == QuantisedRange(float(np.float32(4.2 / 255)), -7, "int8")
    assert ranges["sum_d"] == ranges["pooled"] == ranges["joined"] == ranges["mean_d"] == ranges["flat"]
    assert "mean" not in ranges
    assert {name for name in ranges if name.startswith("conv")} == {"conv2_d"}


def test_dequantised_weights_are_exact_constants(prepare_quickly: Prepare) -> None:
    prepared = prepare_quickly(network()).model
    stored = {initializer.name: initializer for initializer in prepared.graph.initializer}
    assert stored["w1"].data_type == TensorProto.INT8
    take_out_quantisation(prepared)
    kept = {initializer.name: initializer for initializer in prepared.graph.initializer}
    assert "w1" not in kept
    assert kept["w1_d"].data_type == TensorProto.FLOAT


@pytest.mark.parametrize("zero", [0, 128, 70])
def test_operators_over_whole_numbers_become_floats(zero: int, prepare_quickly: Prepare) -> None:
    built = one_convolution(zero)
    prepared = prepare_quickly(built).model
    ranges = take_out_quantisation(prepared)
    assert _operators(prepared) == {"Div": 2, "Round": 2, "Clip": 2, "Mul": 2, "Conv": 1, "MaxPool": 1}
    assert ranges["y"] == QuantisedRange(0.5, -8, "int8")
    _assert_equal(built, prepared)


def test_results_are_clipped_to_what_can_be_represented(prepare_quickly: Prepare) -> None:
    q = Qdq("int8")
    q.pair("x", 0.0, 1.0, output="y")
    built = model(q.nodes, [("x", (64,), FLOAT)], ["y"], q.constants)
    prepared = prepare_quickly(built).model
    assert take_out_quantisation(prepared)["y"].zero_point == -128
    y = run(prepared, {"x": np.linspace(-3, 3, 64, dtype=np.float32)})["y"]
    assert y.min() == 0.0
    assert y.max() == pytest.approx(1.0)


def test_a_second_rounding_to_the_same_range_does_nothing(prepare_quickly: Prepare) -> None:
    q = Qdq("uint8")
    inner = q.op("Transpose", [q.pair("x", -1.0, 1.0)], "turned", perm=[1, 0])
    q.constants |= {"turned_s": q.constants["x_s"], "turned_z": q.constants["x_z"]}
    numbers = ["turned_s", "turned_z"]
    q.op("QuantizeLinear", [inner, *numbers], "again")
    q.op("Relu", [q.op("DequantizeLinear", ["again", *numbers], "back")], "y")
    built = model(q.nodes, [("x", (4, 6), FLOAT)], ["y"], q.constants)
    prepared = prepare_quickly(built).model
    ranges = take_out_quantisation(prepared)
    assert _operators(prepared) == {"Div": 1, "Round": 1, "Clip": 1, "Mul": 1, "Relu": 1, "Transpose": 1}
    assert ranges["y"] == ranges["turned"]


def test_what_somebody_else_reads_unrounded_keeps_its_values(prepare_quickly: Prepare) -> None:
    q = Qdq("int8")
    mean = q.op("Sigmoid", ["x"], "mean")
    rounded = q.pair(mean, 0.0, 1.0)
    q.op("Sub", [mean, rounded], "y")
    built = model(q.nodes, [("x", (64,), FLOAT)], ["y"], q.constants)
    prepared = prepare_quickly(built).model
    assert "mean" not in take_out_quantisation(prepared)
    _assert_equal(built, prepared)


def test_a_range_that_begins_at_zero_takes_the_place_of_relu(prepare_quickly: Prepare) -> None:
    q = Qdq("uint8")
    q.pair(q.op("Relu", ["x"], "r"), 0.0, 1.0, output="y")
    built = model(q.nodes, [("x", (64,), FLOAT)], ["y"], q.constants)
    prepared = prepare_quickly(built).model
    take_out_quantisation(prepared)
    assert _operators(prepared) == {"Div": 1, "Round": 1, "Clip": 1, "Mul": 1}
    _assert_equal(built, prepared)


def test_halves_go_to_the_even_number_before_the_zero_point_is_added(prepare_quickly: Prepare) -> None:
    q = Qdq("int8")
    q.pair("x", -1.0, 1.0, output="y")
    q.constants["x_s"], q.constants["x_z"] = np.float32(0.5), np.int8(3)
    built = model(q.nodes, [("x", (41,), FLOAT)], ["y"], q.constants)
    prepared = prepare_quickly(built).model
    take_out_quantisation(prepared)
    x = np.linspace(-5, 5, 41, dtype=np.float32)
    np.testing.assert_array_equal(run(prepared, {"x": x})["y"], 0.5 * np.rint(x / 0.5))


def test_results_in_8_bits_stay_in_8_bits(prepare_quickly: Prepare) -> None:
    q = Qdq("int8")
    q.pair("x", -1.0, 1.0)
    built = model(q.nodes[:1], [("x", (5,), FLOAT)], [("x_q", (5,), TensorProto.INT8)], q.constants)
    prepared = prepare_quickly(built).model
    assert take_out_quantisation(prepared) == {}
    assert _operators(prepared) == {"QuantizeLinear": 1}


def test_float_models_are_left_alone(prepare_quickly: Prepare) -> None:
    prepared = prepare_quickly(model([node("Relu", ["x"], ["y"])], [("x", (3,), FLOAT)], ["y"])).model
    before = prepared.SerializeToString()
    assert take_out_quantisation(prepared) == {}
    assert prepared.SerializeToString() == before


RANDOM = np.random.default_rng(1)
WEIGHT, OTHER = (RANDOM.standard_normal((7, 5)).astype(np.float32) for _ in range(2))
X = RANDOM.standard_normal((3, 7)).astype(np.float32)
EXPONENTS = (3, -2, 0, 16, -16, 1, 5)


def _model() -> ModelProto:
    """Two products share a weight, one of them and a Gemm a tensor, which a sum reads too."""
    nodes = [
        node("Relu", ["x"], ["read"], name="relu"),
        node("Tanh", ["x"], ["apart"], name="tanh"),
        node("MatMul", ["read", "w"], ["a"], name="product"),
        node("MatMul", ["apart", "w"], ["b"], name="other"),
        node("Gemm", ["read", "turned", "bias"], ["c"], name="gemm", transB=1),
        node("ReduceSum", ["read", "axes"], ["d"], name="total", keepdims=1),
        node("Sum", ["a", "b", "c", "d"], ["y"], name="sum"),
        node("MatMul", ["x", "w"], ["z"], name="of_input"),
    ]
    constants = {"w": WEIGHT, "turned": np.ascontiguousarray(OTHER.T), "axes": np.array([1])}
    built = model(nodes, [("x", (3, 7), FLOAT)], ["y", "z"], {**constants, "bias": OTHER[0]})
    infer_shapes(built)
    return built


def _outputs(built: ModelProto) -> list[Array]:
    return list(ReferenceModel(built.SerializeToString(), threads=1)({"x": X}))


def test_products_by_weights_are_found_by_what_they_read() -> None:
    found = {tensor: [each.name for each in nodes] for tensor, nodes in products_by_tensor(_model()).items()}
    assert found == {"read": ["product", "gemm"], "apart": ["other"]}


def test_results_keep_their_bits() -> None:
    plain, equalised = _model(), _model()
    assert equalise_products(equalised, {"read": EXPONENTS, "gone": (1,)}) == ("product", "gemm")
    infer_shapes(equalised)
    for found, expected in zip(_outputs(equalised), _outputs(plain), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert len(equalised.graph.node) == len(plain.graph.node) + 1
    names = {initializer.name for initializer in equalised.graph.initializer}
    assert "w" in names, "another product still reads it"
    assert "turned" not in names


@pytest.mark.parametrize("exponents", [(), (1, 2)])
def test_exponents_of_another_model_are_refused(exponents: tuple[int, ...]) -> None:
    said = (
        f"the plan is for another model: it has {len(exponents)} exponents for tensor 'read', .* 7 channels; tune again"
    )
    with pytest.raises(UsageError, match=said):
        equalise_products(_model(), {"read": exponents})


def test_wrong_exponents_are_seen() -> None:
    """The comparison above notices a weight that is scaled along the other axis, or not at all."""
    equalised = _model()
    equalise_products(equalised, {"read": EXPONENTS})
    (product,) = (each for each in equalised.graph.node if each.name == "product")
    product.input[1] = "w"
    assert not np.array_equal(_outputs(equalised)[0], _outputs(_model())[0])


@pytest.mark.parametrize(("size", "exponent", "kept"), [(1.0, 16, True), (2.0**120, 16, False), (1e-38, -16, False)])
def test_what_would_lose_bits_is_told(size: float, exponent: int, kept: bool) -> None:
    product, _, *_ = (each for nodes in products_by_tensor(_model()).values() for each in nodes)
    assert is_exact(product, WEIGHT * np.float32(size), (exponent,) * 7) == kept
