"""A layer that differs by more than rounding allows is seen, however much the network amplifies what rounding does."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto

from sartor.errors import UnsupportedModelError
from sartor.reference.layerwise.layer_check import CheckedLayers, Claim, LayerCheck
from sartor.reference.tie_spread import tie_spread
from sartor.reference.trusted.reference_model import ReferenceModel
from tests.plugin.amplifying_networks import image, quantised
from tests.plugin.onnx_model.builders import FLOAT, FLOAT16, Array, model, node, weights
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
    constants = {each.name for each in built.graph.initializer}
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
    assert tie_spread(_network(name, "qdq", folder).SerializeToString(), samples) > 0.1


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


def test_nodes_of_the_file_may_be_in_any_order() -> None:
    nodes = [node("Neg", ["a"], ["y"]), node("Relu", ["x"], ["a"])]
    built = model(nodes, [("x", (2,), FLOAT)], ["y"])
    x = np.array([-1, 2], np.float32)
    assert LayerCheck(built, {"y": Claim("layer")})({"x": x}, {"y": -np.maximum(x, 0)}).wrong == ()


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("layout", ["qdq", "qoperator"])
def test_many_layers_together_are_not_called_right(layout: str, count: int, folder: Path) -> None:
    """Bounds behind them are so wide that planted faults were within them."""
    right, feeds = _network("residual", layout, folder), {"x": image(21)}
    names = _claimed(right)[-count:]
    check = LayerCheck(right, {name: Claim(name) for name in names})
    with pytest.raises(UnsupportedModelError, match="layers whose own results are not in the file"):
        check(feeds, _computed(right, names, feeds))
