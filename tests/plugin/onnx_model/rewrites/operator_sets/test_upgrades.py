"""Old operator forms: the raised model computes what ONNX Runtime computes with the old one."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, defs

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.graph import opset
from sartor.onnx_model.rewrites.operator_sets.upgrades import UPGRADES
from sartor.reference.random_inputs import sample_inputs
from tests.plugin.onnx_model.builders import FLOAT, Value, model, node, relative_error, run, weights
from tests.plugin.onnx_model.conftest import Prepare

X: list[Value] = [("x", (2, 3, 4, 5), FLOAT)]
_NORM = {name: np.abs(weights(3, seed=index)) for index, name in enumerate("gbmv")}

OLD: dict[str, ModelProto] = {
    "clip": model([node("Clip", ["x"], ["y"], min=-0.5, max=0.25)], X, ["y"], opset=10),
    "clip_one_side": model([node("Clip", ["x"], ["y"], max=0.25)], X, ["y"], opset=7),
    "dropout": model([node("Dropout", ["x"], ["y"], ratio=0.3)], X, ["y"], opset=8),
    "norm": model([node("BatchNormalization", ["x", *"gbmv"], ["y"])], X, ["y"], _NORM, opset=8),
    "norm_of_positions": model(
        [node("BatchNormalization", ["x", *"gbmv"], ["y"], spatial=0, epsilon=1e-3)],
        X,
        ["y"],
        {name: np.abs(weights(3, 4, 5, seed=index)) for index, name in enumerate("gbmv")},
        opset=8,
    ),
    "pad": model([node("Pad", ["x"], ["y"], pads=[0, 0, 1, 2, 0, 0, 2, 1], value=0.5)], X, ["y"], opset=8),
    "pad_reflect": model([node("Pad", ["x"], ["y"], pads=[0, 0, 1, 2, 0, 0, 2, 1], mode="reflect")], X, ["y"], opset=9),
    "reduce_sum": model([node("ReduceSum", ["x"], ["y"], axes=[1, 3], keepdims=0)], X, ["y"], opset=11),
    "resize": model(
        [node("Resize", ["x", "s"], ["y"], mode="nearest")],
        X,
        ["y"],
        {"s": np.array([1, 1, 2, 3], np.float32)},
        opset=10,
    ),
    "resize_shrinks": model(
        [node("Resize", ["x", "s"], ["y"], mode="nearest")],
        X,
        ["y"],
        {"s": np.array([1, 1, 0.6, 2.5], np.float32)},
        opset=10,
    ),
    "resize_linear": model(
        [node("Resize", ["x", "s"], ["y"], mode="linear")],
        X,
        ["y"],
        {"s": np.array([1, 1, 2, 1.5], np.float32)},
        opset=10,
    ),
    "scatter": model(
        [node("Scatter", ["x", "i", "u"], ["y"], axis=3)],
        X,
        ["y"],
        {"i": np.zeros((1, 1, 1, 1), np.int64), "u": np.ones((1, 1, 1, 1), np.float32)},
        opset=9,
    ),
    "slice": model([node("Slice", ["x"], ["y"], starts=[1, -3], ends=[100, -1], axes=[2, 3])], X, ["y"], opset=9),
    "slice_first_axes": model([node("Slice", ["x"], ["y"], starts=[1, 0], ends=[2, 2])], X, ["y"], opset=7),
    "softmax_last": model([node("Softmax", ["x"], ["y"], axis=3)], X, ["y"], opset=11),
    "softmax_together": model([node("Softmax", ["x"], ["y"])], X, ["y"], opset=11),
    "log_softmax_together": model([node("LogSoftmax", ["x"], ["y"], axis=2)], X, ["y"], opset=9),
    "split": model([node("Split", ["x"], ["y", "z"], axis=3, split=[2, 3])], X, ["y", "z"], opset=11),
    "split_evenly": model([node("Split", ["x"], ["y", "z"], axis=2)], X, ["y", "z"], opset=9),
    "squeeze": model(
        [node("Unsqueeze", ["x"], ["u"], axes=[0, 3]), node("Squeeze", ["u"], ["y"], axes=[0])], X, ["y"], opset=11
    ),
    "top_k": model([node("TopK", ["x"], ["y", "i"], k=2, axis=3)], X, ["y", ("i", None, TensorProto.INT64)], opset=9),
    "upsample_attribute": model([node("Upsample", ["x"], ["y"], scales=[1.0, 1.0, 2.0, 2.0])], X, ["y"], opset=7),
    "upsample_input": model(
        [node("Upsample", ["x", "s"], ["y"], mode="linear")],
        X,
        ["y"],
        {"s": np.array([1, 1, 2, 2], np.float32)},
        opset=9,
    ),
}


@pytest.mark.parametrize("name", sorted(OLD))
def test_raised_operator_computes_the_same(name: str, prepare_quickly: Prepare) -> None:
    old = OLD[name]
    feeds = sample_inputs(old, 3)
    expected = run(old, feeds)
    prepared = prepare_quickly(old).model
    assert opset(prepared) == 17
    for output, value in run(prepared, feeds).items():
        assert relative_error(value, expected[output]) <= 1e-6


@pytest.mark.parametrize(
    ("attributes", "second", "expected"),
    [
        ({"broadcast": 1, "axis": 1}, (3,), (3, 1, 1)),
        ({"broadcast": 1, "axis": 1}, (3, 4), (3, 4, 1)),
        ({"broadcast": 1}, (5,), (5,)),
        ({"broadcast": 1, "axis": -1}, (5,), (5,)),
    ],
)
def test_broadcast_of_the_first_opsets(
    attributes: dict[str, int], second: tuple[int, ...], expected: tuple[int, ...], prepare_quickly: Prepare
) -> None:
    """ONNX Runtime no longer runs these, so the old rule is written out here."""
    operand = weights(*second)
    prepared = prepare_quickly(model([node("Mul", ["x", "b"], ["y"], **attributes)], X, ["y"], {"b": operand}, opset=6))
    x = weights(2, 3, 4, 5, seed=1)
    np.testing.assert_array_equal(run(prepared.model, {"x": x})["y"], x * operand.reshape(expected))


def test_first_opset_forms(prepare_quickly: Prepare) -> None:
    nodes = [
        node("Relu", ["x"], ["a"], consumed_inputs=[0]),
        node("Cast", ["a"], ["b"], to="FLOAT"),
        node("Reshape", ["b"], ["c"], shape=[2, 3, 20]),
        node("Pad", ["c"], ["d"], paddings=[0, 0, 1, 0, 0, 1]),
        node("Concat", ["d", "d"], ["y"]),
    ]
    prepared = prepare_quickly(model(nodes, X, ["y"], opset=1))
    x = weights(2, 3, 4, 5)
    flat = np.pad(np.maximum(x, 0).reshape(2, 3, 20), ((0, 0), (0, 0), (1, 1)))
    np.testing.assert_array_equal(run(prepared.model, {"x": x})["y"], np.concatenate([flat, flat], axis=1))


def test_slopes_per_channel_of_the_first_opsets(prepare_quickly: Prepare) -> None:
    """ONNX Runtime no longer runs these."""
    slopes = weights(3)
    prepared = prepare_quickly(model([node("PRelu", ["x", "s"], ["y"])], X, ["y"], {"s": slopes}, opset=6)).model
    x = weights(2, 3, 4, 5, seed=1)
    np.testing.assert_array_equal(run(prepared, {"x": x})["y"], np.where(x < 0, x * slopes.reshape(3, 1, 1), x))


def test_orders_that_are_floats(prepare_quickly: Prepare) -> None:
    """ONNX Runtime runs LpPool since opset 2."""
    old = model([node("LpPool", ["x"], ["y"], kernel_shape=[2, 2], p=2.0)], X, ["y"], opset=1)
    new = model([node("LpPool", ["x"], ["y"], kernel_shape=[2, 2], p=2)], X, ["y"])
    feeds = sample_inputs(old, 3)
    np.testing.assert_allclose(run(prepare_quickly(old).model, feeds)["y"], run(new, feeds)["y"], rtol=1e-6)


@pytest.mark.parametrize(("version", "kind"), [(7, FLOAT), (9, FLOAT), (10, TensorProto.BOOL), (11, TensorProto.BOOL)])
def test_masks_of_dropout_are_those_of_onnx_runtime(version: int, kind: int, prepare_quickly: Prepare) -> None:
    """Of the values' type at first, and zero at inference until the standard said what they are."""
    old = model([node("Dropout", ["x"], ["y", "m"], ratio=0.3)], X, ["y", ("m", None, kind)], opset=version)
    feeds = sample_inputs(old, 3)
    actual = run(prepare_quickly(old).model, feeds)
    for name, expected in run(old, feeds).items():
        assert actual[name].dtype == expected.dtype
        np.testing.assert_array_equal(actual[name], expected)


def _scan_of_batches(lengths: str, directions: list[int]) -> ModelProto:
    """Running sums of sequences [batch 2, steps 4, 3], which begin with a state [2, 3]."""
    nodes = [node("Add", ["s", "e"], ["t"]), node("Identity", ["t"], ["sum"])]
    values = [(name, (3,), FLOAT) for name in ("t", "sum")]
    body = model(nodes, [("s", (3,), FLOAT), ("e", (3,), FLOAT)], values).graph
    names = [lengths, "first", "x"]
    scan = node("Scan", names, ["last", "sums"], body=body, num_scan_inputs=1, directions=directions)
    outputs: list[Value] = [("last", (2, 3), FLOAT), ("sums", (2, 4, 3), FLOAT)]
    inputs: list[Value] = [("first", (2, 3), FLOAT), ("x", (2, 4, 3), FLOAT)]
    return model([scan], inputs, outputs, {lengths: np.array([4, 2])} if lengths else {}, opset=8)


@pytest.mark.parametrize("directions", [[0], [1]])
def test_scans_of_batches_run_by_sequence(directions: list[int], prepare_quickly: Prepare) -> None:
    built = _scan_of_batches("", directions)
    feeds = sample_inputs(built, 3)
    actual, step = run(prepare_quickly(built).model, feeds), -1 if directions[0] else 1
    sums = feeds["first"][:, None] + np.cumsum(feeds["x"][:, ::step], 1)
    np.testing.assert_allclose(actual["sums"], sums, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(actual["last"], sums[:, -1], rtol=1e-5, atol=1e-5)


def test_scans_of_batches_by_lengths_are_refused(prepare_quickly: Prepare) -> None:
    with pytest.raises(UnsupportedModelError, match=r"node 'scan' \(Scan\) of opset 8 .*export the model"):
        prepare_quickly(_scan_of_batches("lengths", [0]))


# Changes that need nothing: attributes added with the old meaning as default, or renamed inputs.
_COMPATIBLE = frozenset(
    {
        *("ArgMax", "ArgMin", "AveragePool", "Constant", "DepthToSpace", "DequantizeLinear", "GatherND", "MaxPool"),
        *("QuantizeLinear", "ScatterElements", "ScatterND", "Shape"),
    }
)


def test_every_changed_operator_is_handled() -> None:
    """Attributes or inputs that differ between two versions up to 17 need an upgrade or a reason not to have one."""
    history: dict[str, dict[int, tuple[object, ...]]] = defaultdict(dict)
    for schema in defs.get_all_schemas_with_history():
        if not schema.domain and schema.since_version <= 17:
            form = sorted((name, str(item.default_value)) for name, item in schema.attributes.items())
            inputs = [] if schema.name == "BatchNormalization" else [item.name for item in schema.inputs]
            history[schema.name][schema.since_version] = (*form, *inputs, schema.deprecated)
    changed = {name for name, forms in history.items() if len(set(forms.values())) > 1}
    assert changed - set(UPGRADES) - _COMPATIBLE == set()
