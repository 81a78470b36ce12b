"""Networks whose sizes callers choose, as exporters write them: of text, of images, of lines of text, and of speech."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import onnx
from onnx import TensorProto

from benchmarks.networks.exported import Exported

_WORDS, _POSITIONS = 2_000, 512
_WIDTH, _HEADS, _LAYERS = 384, 12, 6
_FAR = -1e4
# Channels of a detector's steps, each of half the height and width of the one before, and of what they are joined to.
_STEPS, _JOINED = (16, 32, 64, 96, 128), 64
_BOXES = 5
# Channels of a recogniser's convolutions, each behind a pooling of this height and width.
_LINES = ((32, (2, 2)), (64, (2, 2)), (128, (2, 1)), (128, (2, 1)))
_HIDDEN, _LETTERS = 96, 97
_MELS, _SPEECH, _SPEECH_HEADS, _SPEECH_LAYERS = 80, 144, 4, 4


def masked_encoder(seed: int = 0) -> onnx.ModelProto:
    """A text encoder of any batch and length, ``input_ids`` and ``attention_mask`` to the mean over real tokens."""
    net = Exported("masked_encoder", seed)
    ids, mask = (net.input(name, ["batch", "sequence"], TensorProto.INT64) for name in ("input_ids", "attention_mask"))
    batch, length = _sizes(net, ids, 2)
    places = net("Slice", net.hold(net.drawn(1, _POSITIONS, _WIDTH)), net.numbers(0), length, net.numbers(1))
    x = net.norm(net("Add", net("Gather", net.hold(net.drawn(_WORDS, _WIDTH)), ids, axis=0), places), _WIDTH)
    real = net("Cast", mask, to=TensorProto.FLOAT)
    hidden = net("Mul", net("Sub", net.hold(1), net("Unsqueeze", real, net.numbers(1, 2))), net.hold(_FAR))
    shapes = (
        net("Concat", batch, length, net.numbers(_HEADS, _WIDTH // _HEADS), axis=0),
        net("Concat", batch, length, net.numbers(_WIDTH), axis=0),
    )
    for _ in range(_LAYERS):
        x = net.norm(net("Add", x, _attended(net, x, (_WIDTH, _HEADS), shapes, hidden)), _WIDTH)
        forward = net.linear(_gelu(net, net.linear(x, _WIDTH, 4 * _WIDTH)), 4 * _WIDTH, _WIDTH)
        x = net.norm(net("Add", x, forward), _WIDTH)
    weights = net("Unsqueeze", real, net.numbers(2))
    total = net("ReduceSum", net("Mul", x, weights), net.numbers(1), keepdims=0)
    count = net("ReduceSum", weights, net.numbers(1), keepdims=0)
    net("Div", total, net("Max", count, net.hold(1e-9)), output="embedding")
    net.output("embedding", ["batch", _WIDTH])
    return net.model()


def grid_detector(seed: int = 0) -> onnx.ModelProto:
    """A detector of images whose sides are multiples of 32: depthwise blocks, steps that are enlarged and joined, and
    boxes for each place of three of them."""
    net = Exported("grid_detector", seed)
    x = net.input("image", ["batch", 3, "height", "width"])
    x = net("Relu", net.conv(x, 3, _STEPS[0], 3, 3, strides=[2, 2], pads=[1] * 4))
    steps = list[str]()
    for before, channels in pairwise(_STEPS):
        x = _separable(net, x, before, channels, 2)
        x = net("Add", x, _separable(net, x, channels, channels, 1))
        steps.append(x)
    x, found = net("Relu", net.conv(steps[-1], _STEPS[-1], _JOINED, 1, 1)), list[str]()
    scales = net.hold([1, 1, 2, 2])
    for step, (image, channels) in enumerate(zip(steps[::-1], _STEPS[::-1], strict=False)):
        if step:
            larger = net(
                "Resize",
                x,
                "",
                scales,
                mode="nearest",
                coordinate_transformation_mode="asymmetric",
                nearest_mode="floor",
            )
            x = _separable(net, net("Concat", larger, image, axis=1), _JOINED + channels, _JOINED, 1)
        if step < 3:
            boxes = net("Transpose", net.conv(x, _JOINED, _BOXES, 1, 1), perm=[0, 2, 3, 1])
            found.append(net("Reshape", boxes, net.numbers(0, -1, _BOXES)))
    net("Sigmoid", net("Concat", *found, axis=1), output="boxes")
    net.output("boxes", ["batch", "places", _BOXES])
    return net.model()


def line_recogniser(seed: int = 0) -> onnx.ModelProto:
    """Lines of text, 32 pixels high and of any width, to letters' probabilities: convolutions and an LSTM over the
    width in both directions."""
    net = Exported("line_recogniser", seed)
    x, before = net.input("line", [1, 1, 32, "width"]), 1
    for channels, pool in _LINES:
        x = net("Relu", net.conv(x, before, channels, 3, 3, pads=[1] * 4))
        x, before = net("MaxPool", x, kernel_shape=pool, strides=pool), channels
    x = net("ReduceMean", x, axes=[2], keepdims=0)
    x = net("Transpose", x, perm=[2, 0, 1])
    weights = [net.hold(net.drawn(2, 4 * _HIDDEN, size, spread=size**-0.5)) for size in (before, _HIDDEN)]
    bias = net.hold(net.drawn(2, 8 * _HIDDEN, spread=0.1))
    x = net("LSTM", x, *weights, bias, hidden_size=_HIDDEN, direction="bidirectional")
    x = net("Reshape", net("Transpose", x, perm=[0, 2, 1, 3]), net.numbers(0, 0, -1))
    net("Softmax", net.linear(x, 2 * _HIDDEN, _LETTERS), output="letters", axis=-1)
    net.output("letters", ["steps", 1, _LETTERS])
    return net.model()


def frame_encoder(seed: int = 0) -> onnx.ModelProto:
    """Frames of a spectrogram of any length: two convolutions with strides, then attention of all that are left."""
    net = Exported("frame_encoder", seed)
    x = net("Unsqueeze", net.input("frames", ["batch", "length", _MELS]), net.numbers(1))
    for before in (1, 32):
        x = net("Relu", net.conv(x, before, 32, 3, 3, strides=[2, 2], pads=[1] * 4))
    x = net("Transpose", x, perm=[0, 2, 1, 3])
    depth = 32 * _MELS // 4
    x = net.norm(net.linear(net("Reshape", x, net.numbers(0, 0, depth)), depth, _SPEECH), _SPEECH)
    head = _SPEECH // _SPEECH_HEADS
    shapes = net.numbers(0, 0, _SPEECH_HEADS, head), net.numbers(0, 0, _SPEECH)
    for _ in range(_SPEECH_LAYERS):
        x = net.norm(net("Add", x, _attended(net, x, (_SPEECH, _SPEECH_HEADS), shapes)), _SPEECH)
        y = net.linear(x, _SPEECH, 4 * _SPEECH)
        y = net.linear(net("Mul", y, net("Sigmoid", y)), 4 * _SPEECH, _SPEECH)
        x = net.norm(net("Add", x, y), _SPEECH)
    net("Identity", x, output="encoded")
    net.output("encoded", ["batch", "steps", _SPEECH])
    return net.model()


def _sizes(net: Exported, x: str, count: int) -> list[str]:
    """The sizes of the first dimensions, as tensors of one element."""
    shape = net("Shape", x)
    return [net("Gather", shape, net.numbers(axis), axis=0) for axis in range(count)]


def _attended(net: Exported, x: str, sizes: tuple[int, int], shapes: tuple[str, str], hidden: str | None = None) -> str:
    """Attention of rows ``x`` to each other, given its width and heads, and the shapes with heads apart and joined."""
    (width, heads), (apart, joined) = sizes, shapes
    turns = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    parts = (net("Reshape", net.linear(x, width, width), apart) for _ in turns)
    query, key, value = (net("Transpose", part, perm=turn) for part, turn in zip(parts, turns, strict=True))
    scores = net("Mul", net("MatMul", query, key), net.hold(math.sqrt(heads / width)))
    seen = scores if hidden is None else net("Add", scores, hidden)
    mixed = net("MatMul", net("Softmax", seen, axis=-1), value)
    return net.linear(net("Reshape", net("Transpose", mixed, perm=[0, 2, 1, 3]), joined), width, width)


def _gelu(net: Exported, x: str) -> str:
    bell = net("Add", net("Erf", net("Div", x, net.hold(np.sqrt(2)))), net.hold(1))
    return net("Mul", net("Mul", x, bell), net.hold(0.5))


def _separable(net: Exported, x: str, before: int, channels: int, stride: int) -> str:
    """A depthwise convolution and one of 1x1."""
    x = net("Relu", net.conv(x, before, before, 3, 3, strides=[stride] * 2, pads=[1] * 4, group=before))
    return net("Relu", net.conv(x, before, channels, 1, 1))
