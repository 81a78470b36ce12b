"""Operators of training, experimental ones, and masks of attention."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.graph import opset
from sartor.onnx_model.rewrites.operator_sets.training import TRAINING_DOMAIN, expand_training
from sartor.reference.random_inputs import sample_inputs
from sartor.runtime.driver.signature import Array
from sartor.runtime.reference import OnnxRuntimeReference
from tests.plugin.onnx_model.builders import FLOAT, INT64, Value, ints, model, node, relative_error, run, weights
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


DOUBLE = TensorProto.DOUBLE


def test_batch_without_elements_is_refused() -> None:
    statistics = {name: np.abs(weights(3, seed=index)) for index, name in enumerate("gbmv")}
    nodes = [node("BatchNormalization", ["x", *"gbmv"], ["y", "m2", "v2"], training_mode=1)]
    built = model(nodes, [("x", (0, 3, 4), FLOAT)], ["y"], statistics)
    with pytest.raises(UnsupportedModelError, match=r"node 'batchnormalization' .* without elements"):
        expand_training(built)


@pytest.mark.parametrize("training", [None, False])
def test_a_mask_of_dropout_at_inference_is_a_constant(training: bool | None) -> None:
    constants = {} if training is None else {"r": np.float32(0.5), "t": np.bool_(training)}
    nodes = [node("Dropout", ["x", *constants], ["y", "kept"]), node("Not", ["kept"], ["dropped"])]
    built = model(nodes, [("x", (2, 3), FLOAT)], ["y", ("dropped", (2, 3), TensorProto.BOOL)], constants)
    expand_training(built)
    assert "Dropout" not in [each.op_type for each in built.graph.node]
    found = run(built, {"x": weights(2, 3)})
    assert not found["dropped"].any()
    assert np.array_equal(found["y"], weights(2, 3))


@pytest.mark.parametrize("rate", [FLOAT, DOUBLE])
@pytest.mark.parametrize(("operator", "states"), [("Adagrad", 1), ("Adam", 2), ("Momentum", 1)])
def test_step_on_doubles(operator: str, states: int, rate: int, prepare_quickly: Prepare) -> None:
    options = {"alpha": 0.9, "beta": 0.5, "mode": "standard", "norm_coefficient": 0.1} if operator == "Momentum" else {}
    tensors = ["x", "g", "s", "q"][: 2 + states]
    results = ["y", "s2", "q2"][: 1 + states]
    built = model(
        [node(operator, ["r", "t", *tensors], results, domain=TRAINING_DOMAIN, **options)],
        [("r", (), rate), ("t", (), INT64), *((name, (4,), DOUBLE) for name in tensors)],
        [(name, (4,), DOUBLE) for name in results],
    )
    built.opset_import.append(helper.make_opsetid(TRAINING_DOMAIN, 1))
    feeds = {name: np.abs(weights(4, seed=index)).astype(np.float64) for index, name in enumerate(tensors)}
    feeds |= {"r": np.array(0.25, helper.tensor_dtype_to_np_dtype(rate)), "t": np.array(3)}
    found = run(prepare_quickly(built).model, feeds)
    for name, expected in zip(results, ReferenceEvaluator(built).run(None, feeds), strict=True):
        np.testing.assert_allclose(found[name], expected, rtol=1e-4)


_HEADS, _TOKENS, _WIDTH = 2, 3, 8


@pytest.mark.parametrize("is_causal", [0, 1])
@pytest.mark.parametrize("kind", [TensorProto.BOOL, TensorProto.FLOAT])
@pytest.mark.parametrize("past", [0, 4])
def test_a_token_that_sees_no_key_gets_zeros(prepare_quickly: Prepare, kind: int, past: int, is_causal: int) -> None:
    total, random = past + _TOKENS, np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys("qkv", (1, _TOKENS, _WIDTH))
    shapes |= dict.fromkeys(("past_key", "past_value"), (1, _HEADS, past, _WIDTH // _HEADS)) if past else {}
    given: dict[str, Array] = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    visible = np.ones((_TOKENS, total), np.bool_)
    visible[1], visible[2, :2] = False, False
    given["mask"] = visible if kind == TensorProto.BOOL else np.where(visible, 0, -np.inf).astype(np.float32)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in given.items()
    ]
    names = ["q", "k", "v", "mask", *(["past_key", "past_value"] if past else [])]
    node = helper.make_node(
        "Attention",
        names,
        ["y", *(["key", "value"] if past else [])],
        "attention",
        q_num_heads=_HEADS,
        kv_num_heads=_HEADS,
        is_causal=is_causal,
    )
    outputs = [helper.make_tensor_value_info("y", 1, (1, _TOKENS, _WIDTH))]
    graph = helper.make_graph([node], "graph", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    (right,) = OnnxRuntimeReference(model.SerializeToString(), threads=1)(given)
    assert not right[0, 1].any(), "by ONNX Runtime"
    np.testing.assert_allclose(run(prepare_quickly(model).model, given)["y"], right, rtol=1e-5, atol=1e-6)
