"""A layer that differs by more than rounding allows is seen, however much the network amplifies what rounding does."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from unittest.mock import Mock

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

from sartor.errors import UnsupportedModelError
from sartor.reference.layerwise.bounded import Bounded
from sartor.reference.layerwise.layer_check import CheckedLayers, Claim, LayerCheck
from sartor.reference.layerwise.operators import results_of
from sartor.reference.tie_spread import tie_spread
from sartor.reference.tolerance import MOST_BY_ITSELF
from sartor.reference.trusted.reference_model import ReferenceModel
from tests.plugin.amplifying_networks import image, quantised
from tests.plugin.onnx_model.builders import FLOAT, FLOAT16, MS, Array, Value, model, node, weights
from tests.plugin.planted_faults import FAULTS, convolution, copy_of, saturating_sums, zero_point

LAYERS = {"residual": ("a0", "b1", "a3", "b3"), "inverted": ("e0", "d0", "p1", "e2")}


@functools.cache
def _network(name: str, layout: str, folder: Path) -> ModelProto:
    return onnx.load(quantised(name, folder, layout))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("networks")


def _claimed(built: ModelProto) -> list[str]:
    """What a module's layers return: what was rounded, and the output."""
    constants = {initializer.name for initializer in built.graph.initializer}
    kinds = {"DequantizeLinear", "QLinearConv", "QLinearAdd", "QLinearMatMul"}
    named = [each.output[0] for each in built.graph.node if each.op_type in kinds and each.input[0] not in constants]
    return list(dict.fromkeys([*named, *(each.name for each in built.graph.output)]))


def _computed(built: ModelProto, names: list[str], feeds: Mapping[str, Array]) -> dict[str, Array]:
    shown = copy_of(built)
    del shown.graph.output[:]
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    reference = ReferenceModel(shown.SerializeToString(), optimises=False, cuts=False)
    return dict(zip(names, reference(feeds), strict=True))


def _checked(right: ModelProto, module: ModelProto, seed: int = 21) -> CheckedLayers:
    """The check of a module that computes what a model says, against the right model."""
    names, feeds = _claimed(right), {"x": image(seed)}
    return LayerCheck(right, {name: Claim(name) for name in names})(feeds, _computed(module, names, feeds))


@pytest.mark.parametrize("layout", ["qdq", "qoperator"])
@pytest.mark.parametrize("name", LAYERS)
def test_what_the_definition_gives_is_right(name: str, layout: str, folder: Path) -> None:
    built = _network(name, layout, folder)
    found = _checked(built, built)
    assert found.wrong == ()
    assert len(found.layers) == len(_claimed(built))
    # Averages apart, nothing is as near to a tie as the order of sums moves it.
    assert found.ties <= 4


# Only pointwise convolutions are written with sums that saturate.
CASES = [
    (name, layer, fault)
    for name in LAYERS
    for layer in LAYERS[name]
    for fault, plant in FAULTS.items()
    if plant is not saturating_sums or layer[0] in "ep"
]


@pytest.mark.parametrize(("name", "layer", "fault"), CASES)
def test_planted_faults_are_seen_where_they_are(name: str, layer: str, fault: str, folder: Path) -> None:
    right = _network(name, "qdq", folder)
    wrong = copy_of(right)
    FAULTS[fault](wrong, layer)
    found = _checked(right, wrong)
    assert found.wrong
    # A wrong zero point shows in the numbers that it gives, all else in the first that is rounded after the layer.
    before = convolution(right, layer).input[0]
    assert found.wrong[0].tensor == before if FAULTS[fault] is zero_point else found.wrong[0].tensor != before
    assert found.wrong[0].tensor.startswith((before, layer, f"s{layer[1]}"))


@pytest.mark.parametrize("name", LAYERS)
def test_the_networks_amplify_a_step(name: str, folder: Path) -> None:
    """So their outputs alone tell nothing."""
    samples = [{"x": image(seed)} for seed in range(20, 32)]
    assert tie_spread(_network(name, "qdq", folder).SerializeToString(), samples) > MOST_BY_ITSELF


@pytest.mark.parametrize("name", LAYERS)
def test_a_single_value_one_step_off_is_seen(name: str, folder: Path) -> None:
    built, feeds = _network(name, "qdq", folder), {"x": image(7)}
    names = _claimed(built)
    given, check = _computed(built, names, feeds), LayerCheck(built, {each: Claim(each) for each in names})
    for each in names:
        values = np.unique(given[each])
        moved = given[each].copy()
        moved.reshape(-1)[moved.size // 2] += np.diff(values).min()
        found = check(feeds, {**given, each: moved})
        assert found.wrong or found.ties, each


def test_a_tie_may_fall_to_either_side_and_its_neighbours_may_not() -> None:
    constants = {"s": np.float32(0.25), "z": np.uint8(3)}
    nodes = [
        node("GlobalAveragePool", ["x"], ["m"], name="mean"),
        node("QuantizeLinear", ["m", "s", "z"], ["q"], name="q"),
        node("DequantizeLinear", ["q", "s", "z"], ["y"], name="d"),
    ]
    built = model(nodes, [("x", (1, 2, 2, 2), FLOAT)], ["y"], constants)
    # Means of 2.5 steps, a tie, and of 2.25 steps.
    x = np.array([[0, 0, 1.25, 1.25], [0.5, 0.5, 0.5, 0.75]], np.float32).reshape(1, 2, 2, 2)
    check = LayerCheck(built, {"y": Claim("layer")})

    def found(first: float, second: float) -> CheckedLayers:
        return check({"x": x}, {"y": np.array([first, second], np.float32).reshape(1, 2, 1, 1)})

    assert found(0.5, 0.5) == CheckedLayers(("layer",))
    assert found(0.75, 0.5) == CheckedLayers(("layer",), ties=1)
    assert found(0.25, 0.5).wrong[0].wrong == 1
    assert found(0.5, 0.75).wrong[0].wrong == 1
    assert found(0.5, np.nan).wrong[0].wrong == 1


def test_results_of_half_precision_may_be_rounded_and_no_more() -> None:
    constants = {"w": weights(24, 12, scale=0.2).astype(np.float16)}
    nodes = [node("MatMul", ["x", "w"], ["p"], name="product"), node("Relu", ["p"], ["y"], name="relu")]
    built = model(nodes, [("x", (5, 24), FLOAT16)], ["y"], constants)
    feeds = {"x": weights(5, 24, seed=3).astype(np.float16)}
    check = LayerCheck(built, {"y": Claim("layer")})
    right = np.maximum(feeds["x"].astype(np.float64) @ constants["w"].astype(np.float64), 0)
    assert check(feeds, {"y": right.astype(np.float16)}).wrong == ()
    assert check(feeds, {"y": (right * (1 + 2.0**-11)).astype(np.float16)}).wrong == ()
    assert check(feeds, {"y": (right * (1 + 2.0**-6)).astype(np.float16)}).wrong
    assert check(feeds, {"y": np.roll(right, 1, axis=1).astype(np.float16)}).wrong


def test_integers_of_the_file_are_compared_where_a_module_gives_numbers() -> None:
    constants = {"s": np.float32(0.1), "z": np.int8(-5)}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], name="q"),
        node("MaxPool", ["q"], ["m"], name="pool", kernel_shape=[2, 2]),
        node("DequantizeLinear", ["m", "s", "z"], ["y"], name="d"),
    ]
    built = model(nodes, [("x", (1, 3, 5, 5), FLOAT)], ["y"], constants)
    feeds = {"x": weights(1, 3, 5, 5, seed=2)}
    given = _computed(built, ["q", "y"], feeds)
    numbers = (given["q"].astype(np.float32) + 5) * np.float32(0.1)
    check = LayerCheck(built, {"q": Claim("layer", 0.1, -5), "y": Claim("last")})
    assert check(feeds, {**given, "q": numbers}) == CheckedLayers(("layer", "last"))
    for other in (numbers + np.float32(0.1), numbers + np.float32(0.03), numbers * np.float32(1.1)):
        assert check(feeds, {**given, "q": other}).wrong[0].tensor == "q"


def test_an_image_is_enlarged_to_sizes_beside_scales_that_are_empty() -> None:
    constants = {
        **{"s": np.float32(0.25), "z": np.uint8(3), "none": np.zeros(0, np.float32)},
        "sizes": np.array([1, 2, 6, 8], np.int64),
    }
    nodes = [
        node("Resize", ["x", "none", "none", "sizes"], ["r"], mode="linear"),
        node("QuantizeLinear", ["r", "s", "z"], ["q"], name="q"),
        node("DequantizeLinear", ["q", "s", "z"], ["y"], name="d"),
    ]
    built = model(nodes, [("x", (1, 2, 3, 4), FLOAT)], ["y"], constants)
    feeds = {"x": np.abs(weights(1, 2, 3, 4, seed=2))}
    given, check = _computed(built, ["y"], feeds), LayerCheck(built, {"y": Claim("layer")})
    assert check(feeds, given) == CheckedLayers(("layer",))
    assert check(feeds, {"y": given["y"] + np.float32(0.25)}).wrong[0].wrong == 96


def _quantised_image(is_last: bool) -> ModelProto:
    """A convolution, a pooling and an average of integers, of ONNX Runtime's own operators."""
    random = np.random.default_rng(3)
    constants = {
        **{"s": np.float32(0.02), "z": np.uint8(120), "r": np.float32(0.05), "v": np.uint8(7)},
        **{"w": random.integers(-60, 60, (8, 3, 3, 3), np.int8), "k": np.float32(0.01), "n": np.int8(0)},
        "b": random.integers(-900, 900, 8, np.int32),
    }
    last = {"channels_last": int(is_last)}
    nodes = [
        node("QLinearConv", ["x", "s", "z", "w", "k", "n", "r", "v", "b"], ["c"], domain=MS, pads=[1] * 4, **last),
        node("QLinearAveragePool", ["c", "r", "v", "r", "v"], ["p"], domain=MS, kernel_shape=[2, 2], **last),
        node("QLinearGlobalAveragePool", ["p", "r", "v", "s", "z"], ["y"], domain=MS, **last),
    ]
    shape = (2, 6, 5, 3) if is_last else (2, 3, 6, 5)
    return model(nodes, [("x", shape, TensorProto.UINT8)], [("y", None, TensorProto.UINT8)], constants)


@pytest.mark.parametrize("is_last", [False, True])
def test_images_with_channels_last_are_rounded_to_either_side_of_a_tie_only(is_last: bool) -> None:
    built = _quantised_image(is_last)
    shape = [size.dim_value for size in built.graph.input[0].type.tensor_type.shape.dim]
    feeds = {"x": np.random.default_rng(5).integers(0, 256, shape, np.uint8)}
    names = ["c", "p", "y"]
    given, check = _computed(built, names, feeds), LayerCheck(built, {name: Claim(name) for name in names})
    found = check(feeds, given)
    assert (found.layers, found.wrong) == (("c", "p", "y"), ())
    for name in names:
        wrong = given[name].astype(np.int16)
        wrong.reshape(-1)[3] += 2
        assert check(feeds, {**given, name: wrong.astype(np.uint8)}).wrong[0].tensor == name


def _other_operators() -> tuple[ModelProto, dict[str, Array]]:
    """Operators of ONNX Runtime whose result lies next to a tie now and then."""
    random = np.random.default_rng(4)
    constants = {
        **{"s": np.float32(0.02), "z": np.uint8(120), "r": np.float32(0.03), "v": np.uint8(7)},
        **{"w": random.integers(-60, 60, (16, 4), np.int8), "k": random.uniform(0.01, 0.02, 4).astype(np.float32)},
        **{"n": np.zeros(4, np.int8), "b": weights(4)},
    }
    nodes = [
        node("QLinearWhere", ["m", "x", "s", "z", "o", "r", "v", "r", "v"], ["c"], domain=MS),
        node("QLinearReduceMean", ["c", "r", "v", "s", "z"], ["a"], domain=MS, axes=[1], keepdims=0),
        node("QLinearSoftmax", ["c", "r", "v", "s", "z"], ["t"], domain=MS, opset=13),
        node("MatMulIntegerToFloat", ["c", "w", "r", "k", "v", "n", "b"], ["f"], domain=MS),
        node("DynamicQuantizeMatMul", ["g", "w", "k", "n", "b"], ["d"], domain=MS),
    ]
    kinds = {"m": TensorProto.BOOL, "x": TensorProto.UINT8, "o": TensorProto.UINT8, "g": FLOAT}
    inputs = [(name, (6, 16), kind) for name, kind in kinds.items()]
    outputs: list[str | Value] = [("a", None, TensorProto.UINT8), ("t", None, TensorProto.UINT8), "f", "d"]
    feeds = {
        "m": random.integers(0, 2, (6, 16)).astype(np.bool_),
        **{name: random.integers(0, 256, (6, 16), np.uint8) for name in "xo"},
        "g": weights(6, 16, seed=8),
    }
    return model(nodes, inputs, outputs, constants), feeds


def test_other_operators_of_integers_are_known_by_their_definition() -> None:
    built, feeds = _other_operators()
    names = ["c", "a", "t", "f", "d"]
    given, check = _computed(built, names, feeds), LayerCheck(built, {name: Claim(name) for name in names})
    assert check(feeds, given).wrong == ()
    for name in names:
        wrong = given[name].astype(np.float32)
        wrong.reshape(-1)[1] += 2 if given[name].dtype == np.uint8 else 0.05
        assert check(feeds, {**given, name: wrong.astype(given[name].dtype)}).wrong[0].tensor == name


def test_every_output_has_to_be_given() -> None:
    built = model([node("Relu", ["x"], ["y"])], [("x", (2,), FLOAT)], ["y"])
    with pytest.raises(UnsupportedModelError, match="no value of the module stands for the output 'y'"):
        LayerCheck(built, {})


def test_outputs_that_no_node_computes_are_compared() -> None:
    built = model([node("Relu", ["x"], ["y"])], [("x", (2,), FLOAT)], ["y", "x", "w"], {"w": np.ones(3, np.float32)})
    x = np.array([-1, 2], np.float32)
    right = {"y": np.maximum(x, 0), "x": x, "w": np.ones(3, np.float32)}
    check = LayerCheck(built, {name: Claim("layer" if name == "y" else "") for name in right})
    assert check({"x": x}, right).wrong == ()
    for name in right:
        assert [each.tensor for each in check({"x": x}, {**right, name: right[name] + 1}).wrong] == [name]


@pytest.mark.parametrize("planted", [(3, 2), (6,), (1, 2, 3), (0,), (1,)])
def test_an_output_of_another_shape_is_wrong(planted: tuple[int, ...]) -> None:
    """As by a rewrite that reshapes it, though its elements are right; what is inside may have any shape."""
    built = model([node("Relu", ["x"], ["r"]), node("Neg", ["r"], ["y"])], [("x", (2, 3), FLOAT)], ["y", "x"])
    check = LayerCheck(built, {name: Claim(name) for name in "rxy"})
    feeds = {"x": weights(2, 3)}
    right = _computed(built, ["r", "y", "x"], feeds)
    assert check(feeds, {**right, "r": right["r"].reshape(6)}).wrong == ()
    for name in "xy":
        (wrong,) = check(feeds, {**right, name: np.resize(right[name], planted)}).wrong
        assert (wrong.tensor, wrong.told) == (name, f"its shape is {list(planted)}, and [2, 3] is right")


def test_outputs_that_are_single_numbers_are_right() -> None:
    built = model([node("ReduceSum", ["x"], ["y"], keepdims=0)], [("x", (2, 3), FLOAT)], ["y"])
    feeds = {"x": weights(2, 3)}
    assert LayerCheck(built, {"y": Claim("y")})(feeds, _computed(built, ["y"], feeds)).wrong == ()


def test_nodes_of_the_file_may_be_in_any_order() -> None:
    nodes = [node("Neg", ["a"], ["y"]), node("Relu", ["x"], ["a"])]
    built = model(nodes, [("x", (2,), FLOAT)], ["y"])
    x = np.array([-1, 2], np.float32)
    assert LayerCheck(built, {"y": Claim("layer")})({"x": x}, {"y": -np.maximum(x, 0)}).wrong == ()


STEPS = {"s": np.float32(0.25), "z": np.uint8(3)}


def _means() -> list[NodeProto]:
    """Nodes that round a mean, which may be next to a tie: "m" of "x"."""
    return [
        node("GlobalAveragePool", ["x"], ["a"], name="mean"),
        node("QuantizeLinear", ["a", "s", "z"], ["q"], name="q"),
        node("DequantizeLinear", ["q", "s", "z"], ["m"], name="d"),
    ]


def _in_a_branch() -> ModelProto:
    values = [helper.make_tensor_value_info("m", FLOAT, None), helper.make_tensor_value_info("k", FLOAT, None)]
    branches = {
        "then_branch": helper.make_graph(_means(), "then", [], values[:1]),
        "else_branch": helper.make_graph([node("Identity", ["x"], ["k"])], "else", [], values[1:]),
    }
    nodes = [node("If", ["c"], ["y"], **branches)]
    return model(nodes, [("x", (1, 2, 2, 2), FLOAT)], ["y"], {**STEPS, "c": np.array(True)})


def _in_a_function_of_a_function() -> ModelProto:
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    inner = helper.make_function("own", "Inner", ["x", "s", "z"], ["m"], _means(), imports)
    call = node("Inner", ["x", "s", "z"], ["m"], domain="own")
    outer = helper.make_function("own", "Outer", ["x", "s", "z"], ["m"], [call], imports)
    built = model([node("Outer", ["x", "s", "z"], ["y"], domain="own")], [("x", (1, 2, 2, 2), FLOAT)], ["y"], STEPS)
    built.opset_import.append(imports[1])
    built.functions.extend([outer, inner])
    return built


def _in_an_lstm() -> ModelProto:
    item = node("DynamicQuantizeLSTM", ["x"], ["y"], domain=MS)
    return model([item], [("x", (1, 2, 2, 2), FLOAT)], ["y"])


@pytest.mark.parametrize("build", [_in_a_branch, _in_a_function_of_a_function, _in_an_lstm])
def test_of_nodes_that_round_inside_no_ties_are_refused(build: Callable[[], ModelProto]) -> None:
    # A mean of 2.5 steps, which rounds to either side.
    x = np.array([[0, 0, 1.25, 1.25], [0.5, 0.5, 0.5, 0.5]], np.float32).reshape(1, 2, 2, 2)
    y = np.array([0.75, 0.5], np.float32).reshape(1, 2, 1, 1)
    with pytest.raises(UnsupportedModelError, match=r"node '.*' \(.*\) rounds inside, where ties are not followed"):
        LayerCheck(build(), {"y": Claim("layer")})({"x": x}, {"y": y})


def test_sizes_that_depend_on_rounding_are_not_followed() -> None:
    """One of two means lies at a threshold, within the error of its sum."""
    nodes = [node("GlobalAveragePool", ["x"], ["a"]), node("Sub", ["a", "t"], ["m"]), node("Relu", ["m"], ["r"])]
    nodes.append(node("NonZero", ["r"], ["y"]))
    kinds: list[str | Value] = [("y", None, TensorProto.INT64)]
    built = model(nodes, [("x", (1, 2, 1, 3), FLOAT)], kinds, {"t": np.float32(0.3)})
    feeds = {"x": np.array([[0.1, 0.3, 0.5], [0.1, 0.2, 0.3]], np.float32).reshape(1, 2, 1, 3)}
    with pytest.raises(UnsupportedModelError, match=r"the shape of what node 'nonzero' \(NonZero\) gives depends on"):
        LayerCheck(built, {"y": Claim("layer")})(feeds, _computed(built, ["y"], feeds))


def test_moved_integers_of_types_without_limits_are_not_followed() -> None:
    integers = Bounded(np.array([1, 2], ml_dtypes.int4), np.ones(2, np.float32))
    with pytest.raises(
        UnsupportedModelError, match=r"node 'neg' \(Neg\) reads int4, in which rounding is not followed"
    ):
        results_of(node("Neg", ["x"], ["y"]), Mock(return_value=[np.zeros(2, np.int8)]), [integers])


def test_integers_of_four_bits_are_not_read() -> None:
    constants = {"s": np.float32(0.25), "z": np.array(0, ml_dtypes.int4)}
    nodes = [
        node("GlobalAveragePool", ["x"], ["a"], name="mean"),
        node("QuantizeLinear", ["a", "s", "z"], ["q"], name="q"),
        node("Cast", ["q"], ["y"], to=FLOAT),
    ]
    built = model(nodes, [("x", (1, 1, 2, 2), FLOAT)], ["y"], constants, opset=21)
    built.ir_version = 10
    feeds = {"x": np.array([0, 0, 1.25, 1.25], np.float32).reshape(1, 1, 2, 2)}
    with pytest.raises(UnsupportedModelError, match=r"node 'cast' \(Cast\) cannot be run alone: "):
        LayerCheck(built, {"y": Claim("layer")})(feeds, _computed(built, ["y"], feeds))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("layout", ["qdq", "qoperator"])
def test_many_layers_together_are_not_called_right(layout: str, count: int, folder: Path) -> None:
    """Bounds behind them are so wide that planted faults were within them."""
    right, feeds = _network("residual", layout, folder), {"x": image(21)}
    names = _claimed(right)[-count:]
    check = LayerCheck(right, {name: Claim(name) for name in names})
    with pytest.raises(UnsupportedModelError, match="layers whose own results are not in the file"):
        check(feeds, _computed(right, names, feeds))
