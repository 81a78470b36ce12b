"""Experimental operators: the expanded model computes what ONNX Runtime, or Caffe2's definition, computes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import ModelProto, NodeProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.graph import opset
from sartor.reference.random_inputs import sample_inputs
from tests.plugin.onnx_model.builders import FLOAT, Value, ints, model, node, relative_error, run, weights
from tests.plugin.onnx_model.conftest import Prepare

X: list[Value] = [("x", (2, 3, 6, 7), FLOAT)]
KNOWN: dict[str, NodeProto] = {
    "affine": node("Affine", ["x"], ["y"], alpha=2.0, beta=0.5),
    "affine_plain": node("Affine", ["x"], ["y"]),
    "crop_border": node("Crop", ["x"], ["y"], border=[1, 0, 2, 3]),
    "crop_scale": node("Crop", ["x"], ["y"], border=[1, 2, 0, 0], scale=[3, 4]),
    "dynamic_slice": node("DynamicSlice", ["x", "starts", "ends", "axes"], ["y"]),
    "image_scaler": node("ImageScaler", ["x"], ["y"], scale=0.5, bias=[1.0, -2.0, 3.0]),
    "mean_variance": node("MeanVarianceNormalization", ["x"], ["y"]),
    "mean_variance_across": node("MeanVarianceNormalization", ["x"], ["y"], across_channels=1),
    "mean_only": node("MeanVarianceNormalization", ["x"], ["y"], normalize_variance=0),
    "parametric_softplus": node("ParametricSoftplus", ["x"], ["y"], alpha=1.5, beta=2.0),
    "scale": node("Scale", ["x"], ["y"], scale=3.0),
    "scaled_tanh": node("ScaledTanh", ["x"], ["y"], alpha=1.5, beta=2.0),
    "thresholded_relu": node("ThresholdedRelu", ["x"], ["y"], alpha=0.5),
}
_BOUNDS = {"starts": ints(1, -4), "ends": ints(3, -1), "axes": ints(2, 3)}


@pytest.mark.parametrize("version", [6, 8])
@pytest.mark.parametrize("name", sorted(KNOWN))
def test_expanded_operator_computes_the_same(name: str, version: int, prepare_quickly: Prepare) -> None:
    """A Softmax follows, whose upgrade needs the rank of what the operator returns."""
    constants = _BOUNDS if name == "dynamic_slice" else {}
    nodes = [KNOWN[name], node("Softmax", ["y"], ["z"], axis=2)]
    old = model(nodes, X, ["y", "z"], constants, opset=version)
    feeds = sample_inputs(old, 3)
    # ONNX Runtime runs no Softmax of opset 6 that follows operators without a schema, so it gets a newer model.
    expected = run(model(nodes, X, ["y", "z"], constants, opset=8), feeds)
    prepared = prepare_quickly(old).model
    assert opset(prepared) == 17
    for output, value in run(prepared, feeds).items():
        assert relative_error(value, expected[output]) <= 2e-6


@pytest.mark.parametrize(
    ("filling", "shape", "value"),
    [
        (node("ConstantFill", [], ["f"], shape=[2, 1, 1, 1], value=3.0), (2, 1, 1, 1), 3.0),
        (node("ConstantFill", ["x"], ["f"], value=2.0), (2, 3, 6, 7), 2.0),
        (node("ConstantFill", ["size"], ["f"], input_as_shape=1, value=4.0, extra_shape=[7]), (6, 7), 4.0),
        (node("GivenTensorFill", [], ["f"], shape=[1], values=[5.0]), (1,), 5.0),
    ],
)
def test_fill_is_a_constant(filling: NodeProto, shape: tuple[int, ...], value: float, prepare_quickly: Prepare) -> None:
    """ONNX Runtime does not run these."""
    add = node("Add", ["x", "f"], ["y"])
    prepared = prepare_quickly(model([filling, add], X, ["y"], {"size": ints(6)}, opset=8)).model
    x = weights(2, 3, 6, 7)
    np.testing.assert_array_equal(run(prepared, {"x": x})["y"], x + np.full(shape, value, np.float32))


@pytest.mark.parametrize(
    ("refused", "version", "message"),
    [
        (node("ATen", ["x"], ["y"]), 9, r"node 'aten' \(ATen\) calls a function of PyTorch"),
        (node("GRUUnit", ["x", "x", "x", "x"], ["y"]), 7, r"node 'gruunit' \(GRUUnit\) is a step of Caffe2's GRU"),
        (node("Affine", ["x"], ["y"]), 10, r"node 'affine' \(Affine\) is not an operator of ONNX opset 10"),
    ],
)
def test_refusal_names_node_and_way_out(
    refused: NodeProto, version: int, message: str, save_and_load: Callable[[ModelProto | bytes], ModelProto]
) -> None:
    with pytest.raises(UnsupportedModelError, match=f"{message}.*export the model"):
        save_and_load(model([refused], X, ["y"], opset=version))


def test_experimental_operators_are_loaded(save_and_load: Callable[[ModelProto | bytes], ModelProto]) -> None:
    assert save_and_load(model([KNOWN["image_scaler"]], X, ["y"], opset=7)).graph.node[0].op_type == "ImageScaler"
