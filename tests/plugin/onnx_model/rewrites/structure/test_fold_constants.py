"""Constants are folded or left, forms on which IREE fails are gone, and functions that stay are named."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.inliner
import pytest
from onnx import TensorProto, helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.rewrites.structure.fold_constants import fold_constants
from sartor.onnx_model.rewrites.structure.inline_functions import inline_functions
from tests.plugin.onnx_model.builders import FLOAT, FLOAT16, Array, X, ints, model, node, run, weights
from tests.plugin.onnx_model.builders import model as built
from tests.plugin.onnx_model.cases import CASES
from tests.plugin.onnx_model.conftest import Prepare

_MOST_F16 = np.full((1, 4096), 100, np.float16)
_ONE_HOT = {"i": ints(1), "n": np.array(3)}
# Operator, constants, opset, attributes.
_OTHERWISE: dict[str, tuple[str, dict[str, Array], int, dict[str, Any]]] = {
    "infinite_value": ("OneHot", _ONE_HOT | {"v": np.array([0, -np.inf], np.float32)}, 17, {}),
    "lost_value": ("OneHot", _ONE_HOT | {"v": np.array([1e8, 1], np.float32)}, 17, {}),
    "channels": ("LRN", {"c": weights(1, 8, 4, 4)}, 17, {"size": 5, "alpha": 0.5}),
    "log_of_nothing": ("LogSoftmax", {"c": np.array([0, -200], np.float32)}, 17, {}),
    "signed_norm": ("LpNormalization", {"c": np.array([1, -1], np.float32)}, 17, {"p": 1}),
    "rounded_up": (
        "LpPool",
        {"c": weights(1, 1, 6, 6)},
        18,
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    ),
    "padded_before": (
        "MaxPool",
        {"c": weights(1, 1, 8)},
        17,
        {"kernel_shape": [3], "strides": [2], "auto_pad": "SAME_LOWER"},
    ),
    "mixed_statistics": (
        "BatchNormalization",
        {"c": weights(2, 3, 4), **{name: np.array([1, 2, 3], np.float32) for name in ("scale", "b", "mean", "var")}},
        11,
        {},
    ),
    "bias_of_a_channel": (
        "ConvTranspose",
        {"c": weights(1, 2, 2, 2), "w": weights(2, 1, 2, 2), "b": np.array([1, 5], np.float32)},
        17,
        {"group": 2},
    ),
    "averages_at_the_end": (
        "AveragePool",
        {"c": weights(1, 1, 4, 4)},
        17,
        {"kernel_shape": [3, 3], "strides": [3, 3], "ceil_mode": 1},
    ),
    "many_rows": (
        "GatherElements",
        {"c": np.arange(64, dtype=np.float32).reshape(64, 1), "i": np.zeros((64, 1), np.int64)},
        17,
        {"axis": 0},
    ),
    "all_axes": ("Softmax", {"c": weights(2, 3, 4)}, 11, {}),
    "nothing_summed": ("ReduceLogSumExp", {"c": np.full((1, 2), -np.inf, np.float32)}, 17, {"axes": [1]}),
    "ends_of_an_image": (
        "Resize",
        {"c": weights(1, 1, 5, 6), "": np.empty(0), "s": np.array([1, 1, 1.3, 2.6], np.float32)},
        17,
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    ),
}


@pytest.mark.parametrize("name", _OTHERWISE)
def test_what_the_evaluator_computes_otherwise_keeps_its_value(name: str) -> None:
    operator, constants, opset, attributes = _OTHERWISE[name]
    nodes = [node(operator, [*constants], ["folded"], **attributes), node("Sum", ["folded", "x"], ["y"])]
    given = {each: value for each, value in constants.items() if each}
    built = model(nodes, [("x", (1,), FLOAT)], ["y"], given, opset=opset)
    feeds = {"x": np.zeros(1, np.float32)}
    expected = run(built, feeds)["y"]
    # ONNX's inference leaves open how many values a OneHot has.
    built.graph.value_info.append(helper.make_tensor_value_info("folded", FLOAT, expected.shape))
    fold_constants(built)
    np.testing.assert_allclose(run(built, feeds)["y"], expected, rtol=1e-6)


def test_positions_of_ones_are_folded_as_whole_numbers() -> None:
    nodes = [node("OneHot", ["i", "n", "v"], ["folded"]), node("Add", ["folded", "x"], ["y"])]
    constants = _ONE_HOT | {"v": ints(2, 5)}
    built = model(nodes, [("x", (1, 3), TensorProto.INT64)], [("y", None, TensorProto.INT64)], constants)
    built.graph.value_info.append(helper.make_tensor_value_info("folded", TensorProto.INT64, (1, 3)))
    fold_constants(built)
    assert [each.op_type for each in built.graph.node] == ["Add"]
    assert run(built, {"x": np.zeros((1, 3), np.int64)})["y"].tolist() == [[2, 5, 2]]


@pytest.mark.parametrize(
    ("operator", "values"),
    [("ReduceMean", _MOST_F16), ("ReduceL2", _MOST_F16), ("ReduceL2", np.full((1, 1), 300, np.float16))],
)
def test_sums_of_f16_are_folded_in_f32(operator: str, values: Array) -> None:
    nodes = [node(operator, ["c"], ["folded"], axes=[1]), node("Add", ["folded", "x"], ["y"])]
    built = model(nodes, [("x", (1, 1), FLOAT16)], [("y", None, FLOAT16)], {"c": values})
    feeds = {"x": np.zeros((1, 1), np.float16)}
    expected = run(built, feeds)["y"]
    fold_constants(built)
    assert [each.op_type for each in built.graph.node] == ["Add"]
    np.testing.assert_array_equal(run(built, feeds)["y"], expected)


def test_sums_of_bf16_are_folded_in_f32() -> None:
    kind = TensorProto.BFLOAT16
    nodes = [node("ReduceMean", ["c"], ["folded"], axes=[1]), node("Add", ["folded", "x"], ["y"])]
    built = model(nodes, [("x", (1, 1), kind)], [("y", None, kind)])
    values = np.full((1, 1000), 1.5, ml_dtypes.bfloat16)
    built.graph.initializer.append(helper.make_tensor("c", kind, values.shape, values.tobytes(), raw=True))
    assert fold_constants(built) == ("reducemean",)
    (folded,) = [initializer for initializer in built.graph.initializer if initializer.name == "folded"]
    assert folded.data_type == kind
    assert np.frombuffer(folded.raw_data, ml_dtypes.bfloat16).tolist() == [1.5]


@pytest.mark.parametrize("training", [True, False])
def test_dropout_of_constants_is_not_drawn_once(training: bool) -> None:
    constants = {"c": weights(3), "ratio": np.float32(0.5), "training": np.bool_(training)}
    nodes = [node("Dropout", [*constants], ["folded"]), node("Add", ["folded", "x"], ["y"])]
    built = model(nodes, [("x", (3,), FLOAT)], ["y"], constants)
    assert not fold_constants(built)


@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div"])
def test_operands_whose_dimensions_are_named_are_not_folded_before_they_are_aligned(operator: str) -> None:
    nodes = [
        node(operator, ["c", "d"], ["folded"], broadcast=1, axis=0),
        node("Add", ["folded", "x"], ["y"]),
    ]
    built = model(nodes, [("x", (3, 3), FLOAT)], ["y"], {"c": weights(3, 3), "d": weights(3)}, opset=6)
    assert not fold_constants(built)


@pytest.mark.parametrize("name", sorted(name for name in CASES if name.startswith("left_out")))
def test_operands_end_with_one_that_is_given(name: str, prepare_quickly: Prepare) -> None:
    assert any(not item.input[-1] for item in CASES[name]().graph.node)
    assert all(item.input[-1] for item in prepare_quickly(CASES[name]()).model.graph.node)


@pytest.mark.parametrize("kind", [TensorProto.UINT8, TensorProto.UINT32, TensorProto.INT32])
def test_unsigned_numbers_are_their_absolute_values(kind: int, prepare_quickly: Prepare) -> None:
    prepared = prepare_quickly(built([node("Abs", ["x"], ["y"])], [("x", (2, 3), kind)], [("y", None, kind)]))
    assert any(item.op_type == "Abs" for item in prepared.model.graph.node) == (kind == TensorProto.INT32)


def test_products_of_nothing_are_zeros(prepare_quickly: Prepare) -> None:
    assert [item.op_type for item in prepare_quickly(CASES["sums_of_nothing"]()).model.graph.node] == []


def test_what_has_no_elements_is_not_computed(prepare_quickly: Prepare) -> None:
    nodes = [node("Slice", ["x", "n", "n", "last"], ["e"]), node("Relu", ["e"], ["y"]), node("Relu", ["x"], ["z"])]
    prepared = prepare_quickly(built(nodes, X, ["y", "z"], {"n": [0], "last": [3]}))
    assert [item.output[0] for item in prepared.model.graph.node] == ["z"]


def test_message_of_the_inliner_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("/onnx/inliner/inliner.cc:123: ProcessGraph: Assertion `false` failed")

    monkeypatch.setattr(onnx.inliner, "inline_local_functions", refuse)
    function = helper.make_function(
        "own", "F", ["a"], ["b"], [node("Neg", ["a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    built = model([helper.make_node("F", ["x"], ["y"], "call", domain="own")], [("x", (2,), FLOAT)], ["y"])
    built.functions.append(function)
    built.opset_import.append(helper.make_opsetid("own", 1))
    with pytest.raises(
        UnsupportedModelError, match=r"the function of node 'call' cannot be inlined .*export it"
    ) as found:
        inline_functions(built)
    assert "inliner.cc" not in str(found.value)
