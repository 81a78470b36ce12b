"""Operators on images in blocks of channels, and on weights in blocks of integers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto, helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.operator_types.block_size import block_size_here
from sartor.onnx_model.operator_types.schemas import BLOCKED_DOMAIN
from sartor.onnx_model.rewrites.operator_sets.contrib import blocked
from sartor.reference.random_inputs import sample_inputs
from tests.plugin.onnx_model.builders import FLOAT, MS, Array, model, node, relative_error, run, weights
from tests.plugin.onnx_model.conftest import Prepare

_ALLOWED = 1e-6


def _optimised(built: ModelProto, folder: Path) -> ModelProto:
    """The model as ONNX Runtime saves it with all of its optimisations."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(built.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load_model(folder / "optimised.onnx")


def _run(built: ModelProto, feeds: Mapping[str, Array]) -> Array:
    session = onnxruntime.InferenceSession(built.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, dict(feeds))[0])


def _conv(source: str, filters: str, result: str, **attributes: Any) -> NodeProto:
    return node("Conv", [source, filters], [result], name=result, **attributes)


_ASYMMETRIC = {"coordinate_transformation_mode": "asymmetric"}
# Channels that fill no block, one block, and more; images of an even and an odd number of rows.
_CHAINS: dict[str, tuple[list[NodeProto], dict[str, Any]]] = {
    "padded": (
        [_conv("x", "w0", "a", pads=[1] * 4), node("Relu", ["a"], ["r"]), _conv("r", "w1", "y")],
        {"w0": weights(20, 3, 3, 3), "w1": weights(37, 20, 1, 1)},
    ),
    "sigmoid": (
        [_conv("x", "w0", "a"), node("Sigmoid", ["a"], ["s"]), _conv("s", "w1", "b"), _conv("b", "w2", "y", group=20)],
        {"w0": weights(20, 3, 3, 3), "w1": weights(20, 20, 3, 3), "w2": weights(20, 1, 3, 3)},
    ),
    "residual": (
        [
            _conv("x", "w0", "a", pads=[1] * 4),
            _conv("a", "w1", "b", pads=[1] * 4),
            node("Add", ["b", "a"], ["s"]),
            node("Clip", ["s", "least", "most"], ["c"]),
            node("MaxPool", ["c"], ["m"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
            _conv("m", "w2", "d"),
            node("GlobalAveragePool", ["d"], ["y"]),
        ],
        {
            **{"w0": weights(36, 3, 3, 3), "w1": weights(36, 36, 3, 3), "w2": weights(24, 36, 1, 1)},
            **{"least": np.float32(-1), "most": np.float32(6)},
        },
    ),
    "grouped": (
        [
            _conv("x", "w0", "a", strides=[2, 2]),
            _conv("a", "w1", "b", group=2, dilations=[2, 1], pads=[2, 1, 0, 1]),
            node("AveragePool", ["b"], ["p"], kernel_shape=[2, 2], pads=[0, 0, 1, 1], count_include_pad=1),
            _conv("p", "w2", "y"),
        ],
        {"w0": weights(64, 3, 3, 3), "w1": weights(32, 32, 3, 3), "w2": weights(5, 32, 1, 1)},
    ),
    "upsampled": (
        [
            _conv("x", "w0", "a"),
            node("Resize", ["a", "", "scales"], ["u"], mode="linear", coordinate_transformation_mode="align_corners"),
            _conv("u", "w1", "b"),
            node("Resize", ["b", "", "scales"], ["v"], name="nearest", nearest_mode="floor", **_ASYMMETRIC),
            _conv("v", "w1", "y"),
        ],
        {"w0": weights(18, 3, 3, 3), "w1": weights(18, 18, 1, 1), "scales": np.array([1, 1, 2, 3], np.float32)},
    ),
    "empty_filters": (
        [_conv("x", "w0", "a"), node("Add", ["a", "bias"], ["s"]), _conv("s", "w1", "y")],
        {
            "w0": np.concatenate([weights(10, 3, 3, 3), np.zeros((8, 3, 3, 3), np.float32)]),
            **{"bias": weights(18, 1, 1), "w1": weights(18, 18, 1, 1)},
        },
    ),
}


@pytest.mark.skipif(block_size_here() is None, reason="ONNX Runtime lays nothing out in blocks on this processor")
@pytest.mark.parametrize("chain", _CHAINS)
@pytest.mark.parametrize("batch", [1, 3])
def test_blocks_of_channels_are_taken_back(chain: str, batch: int, tmp_path: Path, prepare_quickly: Prepare) -> None:
    nodes, constants = _CHAINS[chain]
    built = model(nodes, [("x", (batch, 3, 12, 15), FLOAT)], ["y"], constants, opset=13)
    saved = _optimised(built, tmp_path)
    assert any(item.domain == BLOCKED_DOMAIN for item in saved.graph.node)
    prepared, feeds = prepare_quickly(saved).model, sample_inputs(built, 3)
    assert relative_error(_run(prepared, feeds), _run(built, feeds)) <= _ALLOWED
    if chain == "sigmoid":
        # What fills blocks is not zero behind it.
        return
    channels = max(tensor.dims[0] for tensor in prepared.graph.initializer if len(tensor.dims) == 4)
    assert channels <= max(np.shape(values)[0] for values in constants.values() if np.ndim(values) == 4)


@pytest.mark.parametrize(("channels", "here", "is_refused"), [(24, 16, True), (24, 8, False), (32, 16, False)])
def test_blocks_of_another_processor_are_refused(
    channels: int, here: int, *, is_refused: bool, prepare_quickly: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime would read them wrongly here."""
    monkeypatch.setattr(blocked, "block_size_here", lambda: here)
    nodes = [
        node("Conv", ["x", "w"], ["a"], domain=BLOCKED_DOMAIN),
        node("ReorderOutput", ["a"], ["y"], domain=BLOCKED_DOMAIN, channels=channels - 3),
    ]
    built = model(nodes, [("x", (1, 3, 5, 5), FLOAT)], ["y"], {"w": weights(channels, 3, 3, 3)}, opset=13)
    built.opset_import.append(helper.make_opsetid(BLOCKED_DOMAIN, 1))
    if is_refused:
        with pytest.raises(UnsupportedModelError, match=r"another processor than this one.*ORT_ENABLE_EXTENDED"):
            prepare_quickly(built)
    else:
        assert prepare_quickly(built).outputs[0].shape == (1, channels - 3, 3, 3)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize("has_bias", [True, False])
def test_bytes_with_channels_last(
    kind: type, group: int, has_bias: bool, tmp_path: Path, prepare_quickly: Prepare
) -> None:
    """As the optimiser lays out two quantised convolutions and a pooling."""
    random = np.random.default_rng(0)
    point = kind(100 if kind is np.uint8 else -20)
    # Sums of two products by signed bytes stay within 16 bits, which some processors do not leave.
    least, most = (0, 256) if kind is np.uint8 else (-64, 64)
    constants: dict[str, Any] = {
        **{"s": np.float32(0.05), "z": point, "t": np.float32(0.01), "v": kind(0) if kind is np.int8 else kind(128)},
        "w": random.integers(least, most, (8, 4, 3, 3)).astype(kind),
        "k": random.integers(least, most, (12, 8 // group, 3, 3)).astype(kind),
        **{"b": random.integers(-500, 500, 8).astype(np.int32), "c": random.integers(-500, 500, 12).astype(np.int32)},
        **{"o": np.float32(0.4), "p": np.float32(2.5)},
    }
    first, second = (["b"], ["c"]) if has_bias else ([], [])
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("QLinearConv", ["q", "s", "z", "w", "t", "v", "o", "z", *first], ["d"], pads=[1, 1, 0, 0], name="first"),
        node("MaxPool", ["d"], ["m"], kernel_shape=[2, 2]),
        node("QLinearConv", ["m", "o", "z", "k", "t", "v", "p", "z", *second], ["e"], group=group, name="second"),
        node("DequantizeLinear", ["e", "p", "z"], ["y"]),
    ]
    built = model(nodes, [("x", (2, 4, 9, 8), FLOAT)], ["y"], constants, opset=13)
    saved = _optimised(built, tmp_path)
    kinds = {(item.domain, item.op_type) for item in saved.graph.node}
    prepared, feeds = prepare_quickly(saved).model, sample_inputs(built, 3)
    assert ("com.microsoft", "QLinearConv") in kinds
    steps = np.abs(_run(prepared, feeds) - _run(built, feeds)) / constants["p"]
    assert np.rint(steps.max()) <= 1
    assert (steps > 0.5).mean() <= 1e-3


def _parts(**changed: np.ndarray) -> dict[str, np.ndarray]:
    parts: dict[str, np.ndarray] = {
        "w": np.full((2, 2, 8), 0x97, np.uint8),
        "s": np.ones(4, np.float32),
        "z": np.full(2, 8, np.uint8),
    }
    return {**parts, **changed}


def _prepared(prepare: Prepare, parts: dict[str, np.ndarray], inputs: list[str] | None = None) -> ModelProto:
    read = inputs or ["x", *parts]
    product = node("MatMulNBits", read, ["y"], domain=MS, K=32, N=2, bits=4, block_size=16)
    return prepare(model([product], [("x", (3, 32), FLOAT)], ["y"], parts)).model


def test_a_weight_stays_encoded(prepare_quickly: Prepare) -> None:
    prepared = _prepared(prepare_quickly, _parts())
    assert [each.op_type for each in prepared.graph.node] == ["MatMulNBits"]
    assert {each.domain for each in prepared.opset_import} == {"", MS}
    rows = np.arange(96, dtype=np.float32).reshape(3, 32)
    expected = rows @ np.stack([np.tile([7.0, 9.0], 16) - np.repeat([8.0, 0.0], 16)] * 2, 1)
    assert np.array_equal(run(prepared, {"x": rows})["y"], expected)


def test_a_bias_is_added_behind(prepare_quickly: Prepare) -> None:
    parts = _parts(b=np.ones(2, np.float32))
    prepared = _prepared(prepare_quickly, parts, ["x", "w", "s", "z", "", "b"])
    assert [each.op_type for each in prepared.graph.node] == ["MatMulNBits", "Add"]


def test_a_product_without_rows_is_constant(prepare_quickly: Prepare) -> None:
    product = node("MatMulNBits", ["x", "w", "s", "z"], ["y"], domain=MS, K=32, N=2, bits=4, block_size=16)
    built = model([product], [("x", ("n", 32), FLOAT)], ["y"], _parts())
    assert "MatMulNBits" not in {each.op_type for each in prepare_quickly(built, {"x": (0, 32)}).model.graph.node}


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"s": np.ones(5, np.float32)}, "5 elements of scales; 4 were expected"),
        ({"w": np.ones((2, 2, 7), np.uint8)}, "28 elements of weights; 32 were expected"),
        ({"z": np.ones(3, np.uint8)}, "3 elements of zero points; 2 were expected"),
        ({"z": np.ones(3, np.float32)}, "3 elements of zero points; 4 were expected"),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts: dict[str, np.ndarray], reason: str, prepare_quickly: Prepare) -> None:
    with pytest.raises(UnsupportedModelError, match=f"'matmulnbits'.*{reason}"):
        _prepared(prepare_quickly, _parts(**parts))
