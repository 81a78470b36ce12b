"""What cannot be compiled is refused by node, a rewrite that fails is our defect, and float64 is checked."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, parser

from sartor.errors import InternalError, UnsupportedModelError
from sartor.onnx_model.graphs.graph import GraphEditor, attributes
from sartor.onnx_model.preparing import prepare as preparing
from sartor.onnx_model.preparing.check_prepared import check_doubles, has_doubles
from sartor.onnx_model.preparing.prepare import prepare
from tests.plugin.onnx_model.builders import FLOAT, MS, Value, model, node, weights
from tests.plugin.onnx_model.conftest import Prepare

_X: list[Value] = [("x", (1, 1, 4, 4), FLOAT)]
_BOUNDS = {"a": np.full(1, 0, np.float32), "b": np.full(1, 1e12, np.float32), "c": np.full(1, 1, np.float32)}


@pytest.mark.parametrize(
    ("built", "message"),
    [
        (
            model([node("MaxPool", ["x"], ["y"], kernel_shape=[9, 9])], _X, ["y"]),
            r"node 'maxpool' \(MaxPool\) computes a value of shape \[1, 1, -4, -4\].* give larger inputs with --shape",
        ),
        (
            model([node("AveragePool", ["x"], ["y"], kernel_shape=[5, 2], strides=[2, 2])], _X, ["y"]),
            r"node 'averagepool' \(AveragePool\) has a window of 5 elements over an input of 4 with its padding",
        ),
        (
            model(
                [node("Conv", ["x", "w"], ["y"], dilations=[1, 4], strides=[1, 5], pads=[0, 1, 0, 0])],
                _X,
                ["y"],
                {"w": np.ones((1, 1, 1, 3), np.float32)},
            ),
            r"node 'conv' \(Conv\) has a window of 9 elements over an input of 5 with its padding",
        ),
        (
            model([node("Resize", ["x", "", "s"], ["y"])], _X, ["y"], {"s": np.array([1, 1, -1, 1], np.float32)}),
            r"node 'resize' \(Resize\) resizes by the scales \[1.0, 1.0, -1.0, 1.0\], which must be positive",
        ),
        (
            model(
                [node("Range", ["a", "b", "c"], ["y"])],
                _X,
                ["y"],
                {name: value.reshape(()) for name, value in _BOUNDS.items()},
            ),
            r"node 'range' \(Range\) computes a value of 3999999983616 bytes, more than",
        ),
        (model([node("Range", ["a", "b", "c"], ["y"])], _X, ["y"], _BOUNDS), "node 'range'"),
        (
            model([node("ConstantFill", [], ["y"], shape=[2**33])], _X, ["y"], opset=7),
            r"node 'constantfill' \(ConstantFill\) fills the shape \[8589934592\], which is larger than",
        ),
        (
            model([node("UnfoldTensor", ["x"], ["y"], domain=MS, size=9)], _X, ["y"]),
            r"node 'unfoldtensor' .* takes windows of 9 elements of a dimension of 4",
        ),
        (
            model([node("MaxPool", ["x"], ["y"], kernel_shape=[2**30, 1], pads=[2**29, 0, 2**29, 0])], _X, ["y"]),
            r"node 'maxpool' \(MaxPool\) pads its input to 17179869248 bytes, more than the 17179869184",
        ),
        (
            model([node("MaxPool", ["x"], ["y"], kernel_shape=[1, 2**31 - 1], auto_pad="SAME_UPPER")], _X, ["y"]),
            r"node 'maxpool' \(MaxPool\) pads its input to 34359738400 bytes, more than",
        ),
        (
            model(
                [node("ScatterND", ["x", "i", "u"], ["y"])],
                _X,
                ["y"],
                {"i": np.zeros((1, 5), np.int64), "u": np.ones(1, np.float32)},
            ),
            r"node 'scatternd' \(ScatterND\) has indices of 5 numbers for a value of 4 dimensions",
        ),
        (
            model([node("DepthToSpace", ["x"], ["y"], blocksize=3)], [("x", (1, 4, 2, 2), FLOAT)], ["y"]),
            r"node 'depthtospace' \(DepthToSpace\) makes blocks of 3 x 3 of 4 channels, which that does not divide",
        ),
    ],
    ids=[
        "window",
        "window by steps",
        "dilated window",
        "scale",
        "range",
        "range of vectors",
        "fill",
        "unfold",
        "pads",
        "automatic pads",
        "indices",
        "blocks",
    ],
)
def test_refusal_names_the_node(built: ModelProto, message: str, prepare_quickly: Prepare) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        prepare_quickly(built)


def test_dropout_in_training_is_refused_before_onnxslim_removes_it() -> None:
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Dropout", ["r", "ratio", "training"], ["d"]),
        node("Relu", ["d"], ["y"], name="last"),
    ]
    built = model(nodes, _X, ["y"], {"ratio": np.float32(0.5), "training": np.bool_(True)})
    with pytest.raises(UnsupportedModelError, match=r"'dropout' \(Dropout\) draws"):
        prepare(built)


def _failing(built: ModelProto) -> tuple[str, ...]:
    return GraphEditor(built.graph).rewrite(lambda each: attributes(each)["missing"])


def _failing_outside(built: ModelProto) -> tuple[str, ...]:
    return (built.graph.node[9].name,)


@pytest.mark.parametrize(
    ("rewrite", "error"), [(_failing, "KeyError: 'missing'"), (_failing_outside, "IndexError: list index out of range")]
)
def test_a_sound_model_is_not_called_malformed(
    rewrite: preparing.Rewrite, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "LOWER", (rewrite,))
    sound = model([node("Relu", ["x"], ["y"])], [("x", (2, 3), FLOAT)], [("y", (2, 3), FLOAT)])
    with pytest.raises(InternalError, match=error) as raised:
        preparing.prepare(sound)
    assert raised.value.exit_code == 70
    assert "in sartor.onnx_model." in str(raised.value)
    assert "malformed" not in str(raised.value)


def test_a_damaged_model_is() -> None:
    nodes = [node("RNN", ["x", "w", "r"], ["y", "last"], hidden_size=4)]
    constants = {"w": weights(1, 4, 3), "r": weights(1, 4, 4)}
    damaged = model(nodes, [("x", (5, 2, 3), TensorProto.STRING)], ["y", "last"], constants)
    with pytest.raises(UnsupportedModelError, match=r"node 'rnn' \(RNN\) is malformed"):
        preparing.prepare(damaged)


_HEADER = '<ir_version: 9, opset_import: ["" : 17]> '
_PLAIN = "graph (float[4] x) => (float[4] y) { d = Cast <to = 11> (x) c = Cos (d) y = Cast <to = 1> (c) }"
_BRANCH = """graph (float[4] x, bool choice) => (float[4] y) {
    y = If (choice) <
        then_branch = then () => (float[4] a) { d = Cast <to = 11> (x) c = Cos (d) a = Cast <to = 1> (c) },
        else_branch = other () => (float[4] b) { b = Neg (x) }
    >
}"""


def _named(graph: str) -> ModelProto:
    return parser.parse_model(_HEADER + graph)


@pytest.mark.parametrize("graph", [_PLAIN, _BRANCH])
def test_an_operator_that_iree_lacks(graph: str, prepare_quickly: Prepare) -> None:
    prepared = prepare_quickly(_named(graph))
    assert has_doubles(prepared.model)
    with pytest.raises(UnsupportedModelError, match=r"node 'Cos_.' \(Cos\) computes in float64"):
        check_doubles(prepared, "cpu")


def test_operators_that_it_has(prepare_quickly: Prepare) -> None:
    prepared = prepare_quickly(_named(_PLAIN.replace("Cos", "Neg")))
    assert has_doubles(prepared.model)
    check_doubles(prepared, "cpu")


@pytest.mark.parametrize("operator", ["Exp", "Log", "Sigmoid", "Sqrt"])
def test_vulkan_lacks_more_of_them(operator: str, prepare_quickly: Prepare) -> None:
    """IREE's exponential there takes half of a number's bits for a number of float32."""
    prepared = prepare_quickly(_named(_PLAIN.replace("Cos", operator)))
    check_doubles(prepared, "cpu")
    if operator == "Sqrt":
        check_doubles(prepared, "vulkan")
        return
    with pytest.raises(UnsupportedModelError, match="computes in float64"):
        check_doubles(prepared, "vulkan")


def test_a_model_of_single_precision(prepare_quickly: Prepare) -> None:
    assert not has_doubles(prepare_quickly(_named("graph (float[4] x) => (float[4] y) { y = Cos (x) }")).model)
