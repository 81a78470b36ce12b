"""Models whose sizes are known only when they run, as exporters write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, TensorProto

from sartor.runtime.driver.signature import Array
from tests.tiny_models import Builder

VOCABULARY, POSITIONS = 50, 64
Dims = Mapping[str, Sequence[int | str]]


def named(model: ModelProto, dims: Dims) -> ModelProto:
    """The model with these dimensions of inputs and outputs, by their names; texts are symbols."""
    for value in (*model.graph.input, *model.graph.output):
        if value.name in dims:
            shape = value.type.tensor_type.shape
            del shape.dim[:]
            for each in dims[value.name]:
                dim = shape.dim.add()
                if isinstance(each, str):
                    dim.dim_param = each
                else:
                    dim.dim_value = each
    return model


def saved(model: ModelProto, path: Path) -> Path:
    """The path of the model, which is written there."""
    onnx.save(model, path)
    return path


def feed_forward(width: int = 24, hidden: int = 40, classes: int = 19) -> ModelProto:
    """Rows of ``x`` through two products with GELU, an addition, a normalisation, and a softmax of a third."""
    build = Builder()
    y = _linear(build, "up", "x", width, hidden)
    y = _linear(build, "down", _gelu(build, "gelu", y), hidden, width)
    y = _normalised(build, "norm", build.op("Add", "added", "x", y), width)
    build.op("Softmax", "y", _linear(build, "head", y, width, classes), axis=-1)
    return named(
        build.model([("x", [1, width])], [("y", [1, classes])]), {"x": ["rows", width], "y": ["rows", classes]}
    )


def encoder(width: int = 32, heads: int = 4, hidden: int = 48, layers: int = 1) -> ModelProto:
    """A text encoder with positions, a mask, attention and a mean over tokens; its shapes follow from ``Shape``."""
    build = Builder()
    shape = build.op("Shape", "shape", "input_ids")
    sides = [build.op("Gather", each, shape, build.constant(np.array([axis]))) for axis, each in enumerate("bt")]
    batch, length = sides
    table = build.op("Gather", "embedded", build.weight(VOCABULARY, width), "input_ids")
    start, axis = build.constant(np.array([0])), build.constant(np.array([1]))
    positions = build.op("Slice", "positions", build.weight(1, POSITIONS, width), start, length, axis)
    x = _normalised(build, "first", build.op("Add", "placed", table, positions), width)
    mask = build.op("Cast", "real_mask", "attention_mask", to=TensorProto.FLOAT)
    away = build.op("Unsqueeze", "mask4", mask, build.constant(np.array([1, 2])))
    away = build.op("Sub", "masked", build.constant(np.array(1, np.float32)), away)
    away = build.op("Mul", "far", away, build.constant(np.array(-1e4, np.float32)))
    by_head = build.op("Concat", "by_head", batch, length, build.constant(np.array([heads, width // heads])), axis=0)
    joined = build.op("Concat", "joined", batch, length, build.constant(np.array([width])), axis=0)
    for index in range(layers):
        x = _attended(build, f"l{index}", x, away, (by_head, joined), (width, heads))
        y = _linear(build, f"l{index}up", x, width, hidden)
        y = _linear(build, f"l{index}down", _gelu(build, f"l{index}gelu", y), hidden, width)
        x = _normalised(build, f"l{index}norm", build.op("Add", f"l{index}sum", x, y), width)
    weights = build.op("Unsqueeze", "weights", mask, build.constant(np.array([2])))
    total = build.op("ReduceSum", "total", build.op("Mul", "kept", x, weights), axis, keepdims=0)
    count = build.op("ReduceSum", "count", weights, axis, keepdims=0)
    build.op("Div", "y", total, build.op("Max", "counted", count, build.constant(np.array(1e-9, np.float32))))
    ids = [(name, [1, 1]) for name in ("input_ids", "attention_mask")]
    model = build.model(ids, [("y", [1, width])], TensorProto.INT64, TensorProto.FLOAT)
    pair = ["batch", "sequence"]
    return named(model, {"input_ids": pair, "attention_mask": pair, "y": ["batch", width]})


def detector(channels: int = 16) -> ModelProto:
    """Convolutions with strides, a depthwise one, poolings that are joined, and boxes for each place of an image."""
    build = Builder()
    x = build.op("Relu", "r0", build.conv("stem", "x", (3, channels), strides=[2, 2]))
    x = build.op("Relu", "r1", build.conv("deep", x, (channels, channels), group=channels))
    fine = build.op("Relu", "r2", build.conv("wide", x, (channels, 2 * channels), kernel=1))
    pooled = build.op("MaxPool", "pooled", fine, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    coarse = build.op("Relu", "r3", build.conv("coarse", pooled, (2 * channels, 2 * channels)))
    x = build.op("Concat", "both", coarse, pooled, axis=1)
    build.op("Sigmoid", "y", build.conv("boxes", x, (4 * channels, 5), kernel=1))
    image: list[int | str] = ["n", 3, "height", "width"]
    return named(build.model([("x", [1] * 4)], [("y", [1] * 4)]), {"x": image, "y": ["n", 5, "h", "w"]})


def recogniser(height: int = 8, channels: int = 16, hidden: int = 40, classes: int = 11) -> ModelProto:
    """A line of text as probabilities of characters: convolutions, poolings, an LSTM in both directions, a product."""
    build = Builder()
    x = build.op("Relu", "r0", build.conv("first", "x", (1, channels)))
    x = build.op("MaxPool", "p0", x, kernel_shape=[2, 2], strides=[2, 2])
    x = build.op("Relu", "r1", build.conv("second", x, (channels, channels), strides=[2, 1]))
    x = build.op("ReduceMean", "line", x, build.constant(np.array([2])), keepdims=0)
    x = build.op("Transpose", "steps", x, perm=[2, 0, 1])
    weights = build.weight(2, 4 * hidden, channels), build.weight(2, 4 * hidden, hidden), build.weight(2, 8 * hidden)
    x = build.op("LSTM", "lstm", x, *weights, hidden_size=hidden, direction="bidirectional")
    x = build.op("Transpose", "last", x, perm=[0, 2, 1, 3])
    x = build.op("Reshape", "flat", x, build.constant(np.array([0, 0, 2 * hidden])))
    build.op("Softmax", "y", _linear(build, "head", x, 2 * hidden, classes), axis=-1)
    dims: Dims = {"x": [1, 1, height, "width"], "y": ["steps", 1, classes]}
    return named(build.model([("x", [1] * 4)], [("y", [1] * 3)]), dims)


def speech_encoder(mels: int = 16, channels: int = 8, width: int = 32, heads: int = 4, layers: int = 1) -> ModelProto:
    """Frames of a spectrogram through two convolutions with strides, and attention of all that are left to all."""
    build = Builder()
    x = build.op("Unsqueeze", "image", "x", build.constant(np.array([1])))
    x = build.op("Relu", "r0", build.conv("first", x, (1, channels), strides=[2, 2]))
    x = build.op("Relu", "r1", build.conv("second", x, (channels, channels), strides=[2, 2]))
    depth = channels * (mels // 4)
    x = build.op("Transpose", "by_frame", x, perm=[0, 2, 1, 3])
    x = build.op("Reshape", "rows", x, build.constant(np.array([0, 0, depth])))
    x = _normalised(build, "entry", _linear(build, "entry_product", x, depth, width), width)
    shapes = [build.constant(np.array(shape)) for shape in ([0, 0, heads, width // heads], [0, 0, width])]
    for index in range(layers):
        name = f"l{index}"
        x = _attended(build, name, x, None, (shapes[0], shapes[1]), (width, heads))
        y = _linear(build, f"{name}up", x, width, 4 * width)
        gate = build.op("Mul", f"{name}swish", y, build.op("Sigmoid", f"{name}gate", y))
        y = _linear(build, f"{name}down", gate, 4 * width, width)
        x = _normalised(build, f"{name}norm", build.op("Add", f"{name}sum", x, y), width)
    build.op("Identity", "y", x)
    return named(
        build.model([("x", [1, 1, mels])], [("y", [1, 1, width])]),
        {"x": ["batch", "frames", mels], "y": ["batch", "steps", width]},
    )


def tokens(batch: int, length: int, seed: int = 0) -> dict[str, Array]:
    """Inputs of an encoder: sentences of at least one token, the first of the full length."""
    draw = np.random.default_rng([seed, batch, length])
    lengths = draw.integers(1, length + 1, size=(batch, 1))
    lengths[0] = length
    ids = draw.integers(0, VOCABULARY, size=(batch, length))
    return {"input_ids": ids, "attention_mask": (np.arange(length)[None] < lengths).astype(np.int64)}


def _linear(build: Builder, name: str, x: str, before: int, after: int) -> str:
    return build.op(
        "Add", name, build.op("MatMul", f"{name}_product", x, build.weight(before, after)), build.weight(after)
    )


def _gelu(build: Builder, name: str, x: str) -> str:
    bell = build.op(
        "Erf", f"{name}_erf", build.op("Div", f"{name}_part", x, build.constant(np.array(np.sqrt(2), np.float32)))
    )
    above = build.op("Add", f"{name}_above", bell, build.constant(np.array(1, np.float32)))
    return build.op("Mul", name, build.op("Mul", f"{name}_both", x, above), build.constant(np.array(0.5, np.float32)))


def _normalised(build: Builder, name: str, x: str, width: int) -> str:
    return build.op("LayerNormalization", name, x, build.weight(width), build.weight(width), axis=-1)


def _attended(
    build: Builder, name: str, x: str, away: str | None, shapes: tuple[str, str], sizes: tuple[int, int]
) -> str:
    by_head, joined = shapes
    width, heads = sizes
    orders = {"q": [0, 2, 1, 3], "k": [0, 2, 3, 1], "v": [0, 2, 1, 3]}
    parts = []
    for each, order in orders.items():
        split = build.op("Reshape", f"{name}{each}_split", _linear(build, f"{name}{each}", x, width, width), by_head)
        parts.append(build.op("Transpose", f"{name}{each}_turned", split, perm=order))
    scores = build.op("MatMul", f"{name}scores", parts[0], parts[1])
    scores = build.op("Div", f"{name}scaled", scores, build.constant(np.array(np.sqrt(width // heads), np.float32)))
    seen = scores if away is None else build.op("Add", f"{name}far", scores, away)
    share = build.op("Softmax", f"{name}share", seen, axis=-1)
    mixed = build.op("Transpose", f"{name}back", build.op("MatMul", f"{name}mixed", share, parts[2]), perm=[0, 2, 1, 3])
    out = _linear(build, f"{name}out", build.op("Reshape", f"{name}flat", mixed, joined), width, width)
    return _normalised(build, f"{name}mid", build.op("Add", f"{name}residual", x, out), width)
