"""Speech synthesis of the kind of VITS: the text, the voice, and both in one model.

Kim et al. 2021 with the sizes of Piper's medium voices: 192 wide, six layers of two heads, a flow of four couplings,
and transposed convolutions that make 256 samples of a frame. Noise is an input, which whoever calls seeds. Sounds have
durations that are computed, which add up to the number of frames: a model with both parts has a length that depends on
data. Durations are those of one convolution here, a flow in the paper.
"""

from __future__ import annotations

import math

import onnx
from onnx import TensorProto

from benchmarks.networks.exported import Exported

_SOUNDS, _WIDTH, _HEADS, _LAYERS, _WIDE = 256, 192, 2, 6, 768
_COUPLINGS, _KERNEL = 4, 5
_UPSAMPLED = ((8, 16, 128), (8, 16, 64), (4, 8, 32))
_FIRST, _RESIDUAL_KERNELS = 256, (3, 5, 7)
_HALF = _WIDTH // 2


def vits_text(seed: int = 0) -> onnx.ModelProto:
    """Sounds, ``input`` `[1, phonemes]`, to ``m_p`` and ``logs_p`` `[1, 192, phonemes]`, and the ``durations`` in
    frames."""
    net = Exported("vits_text", seed)
    net.input("input", [1, "phonemes"], TensorProto.INT64)
    mean, deviation, durations = _text(net)
    for name, value in (("m_p", mean), ("logs_p", deviation)):
        net("Identity", value, output=name)
        net.output(name, [1, _WIDTH, "phonemes"])
    net("Identity", durations, output="durations")
    net.output("durations", [1, "phonemes"])
    return net.model()


def vits_voice(seed: int = 0) -> onnx.ModelProto:
    """Means and deviations of frames, ``m_p`` and ``logs_p``, with ``noise``, each `[1, 192, frames]`, to ``output``,
    256 samples a frame."""
    net = Exported("vits_voice", seed)
    mean, deviation, noise = (net.input(name, [1, _WIDTH, "frames"]) for name in ("m_p", "logs_p", "noise"))
    _voice(net, mean, deviation, noise)
    return net.model()


def vits(seed: int = 0) -> onnx.ModelProto:
    """Both parts: the noise is as long as frames may be, and cut to as many as the durations add up to."""
    net = Exported("vits", seed)
    net.input("input", [1, "phonemes"], TensorProto.INT64)
    net.input("noise", [1, _WIDTH, "most_frames"])
    mean, deviation, durations = _text(net)
    frames = net("Cast", net("ReduceSum", durations, net.numbers(1), keepdims=1), to=TensorProto.INT64)
    frames = net("Reshape", frames, net.numbers(1))
    places = net("Range", net.whole(0), net("Squeeze", frames, net.numbers(0)), net.whole(1))
    ends = net("Unsqueeze", net("CumSum", durations, net.whole(1)), net.numbers(1))
    column = net("Unsqueeze", net("Cast", places, to=TensorProto.FLOAT), net.numbers(0, 2))
    begins = net("Sub", ends, net("Unsqueeze", durations, net.numbers(1)))
    inside = net("And", net("Less", column, ends), net("GreaterOrEqual", column, begins))
    path = net("Transpose", net("Cast", inside, to=TensorProto.FLOAT), perm=[0, 2, 1])
    mean, deviation = (net("MatMul", each, path) for each in (mean, deviation))
    _voice(net, mean, deviation, net("Slice", "noise", net.numbers(0), frames, net.numbers(2)))
    return net.model()


def _text(net: Exported) -> tuple[str, str, str]:
    """Means, logarithms of deviations, and durations of sounds."""
    net.begin("text")
    x = net("Gather", net.hold(net.drawn(_SOUNDS, _WIDTH, spread=1.0)), "input", axis=0)
    for _ in range(_LAYERS):
        parts = [net.linear(x, _WIDTH, _WIDTH) for _ in range(3)]
        shape, size = net.numbers(0, 0, _HEADS, _WIDTH // _HEADS), _WIDTH // _HEADS
        query, key, value = (net("Transpose", net("Reshape", part, shape), perm=[0, 2, 1, 3]) for part in parts)
        scores = net("MatMul", query, net("Transpose", key, perm=[0, 1, 3, 2]))
        shares = net("Softmax", net("Mul", scores, net.hold(1 / math.sqrt(size))), axis=-1)
        context = net("Transpose", net("MatMul", shares, value), perm=[0, 2, 1, 3])
        context = net.linear(net("Reshape", context, net.numbers(0, 0, _WIDTH)), _WIDTH, _WIDTH)
        x = net.norm(net("Add", x, context), _WIDTH)
        y = net.conv(net("Transpose", x, perm=[0, 2, 1]), _WIDTH, _WIDE, 3, pads=[1, 1])
        y = net.conv(net("Relu", y), _WIDE, _WIDTH, 3, pads=[1, 1], gain=1.0)
        x = net.norm(net("Add", x, net("Transpose", y, perm=[0, 2, 1])), _WIDTH)
    x = net("Transpose", x, perm=[0, 2, 1])
    mean, deviation = net.several("Split", net.conv(x, _WIDTH, 2 * _WIDTH, 1, gain=0.5), outputs=("", ""), axis=1)
    logarithm = net("Squeeze", net.conv(x, _WIDTH, 1, 3, pads=[1, 1]), net.numbers(1))
    return mean, deviation, net("Ceil", net("Exp", logarithm))


def _voice(net: Exported, mean: str, deviation: str, noise: str) -> None:
    """Samples of frames, as an output of the model."""
    net.begin("voice")
    x = net("Add", mean, net("Mul", net("Mul", noise, net.hold(0.667)), net("Exp", deviation)))
    for _ in range(_COUPLINGS):
        x = _uncoupled(net, x)
    x = net.conv(x, _WIDTH, _FIRST, 7, pads=[3, 3])
    channels = _FIRST
    for rate, kernel, fewer in _UPSAMPLED:
        edge = (kernel - rate) // 2
        x = net("LeakyRelu", x, alpha=0.1)
        x = net.transposed(x, channels, fewer, kernel, strides=[rate], pads=[edge, edge])
        channels = fewer
        x = _resolved(net, x, channels)
    x = net("Tanh", net.conv(net("LeakyRelu", x, alpha=0.01), channels, 1, 7, pads=[3, 3], gain=0.5))
    net("Identity", x, output="output")
    net.output("output", [1, 1, "samples"])


def _uncoupled(net: Exported, x: str) -> str:
    """A coupling of the flow, backwards: one half is moved by what gated convolutions make of the other."""
    own, other = net.several("Split", x, outputs=("", ""), axis=1)
    y = net.conv(own, _HALF, _WIDTH, 1)
    for _ in range(_COUPLINGS):
        gates = net.conv(y, _WIDTH, 2 * _WIDTH, _KERNEL, pads=[_KERNEL // 2] * 2, gain=1.0)
        value, gate = net.several("Split", gates, outputs=("", ""), axis=1)
        gated = net("Mul", net("Tanh", value), net("Sigmoid", gate))
        y = net("Add", y, net.conv(gated, _WIDTH, _WIDTH, 1))
    moved = net("Sub", other, net.conv(y, _WIDTH, _HALF, 1, gain=0.5))
    return net("Concat", moved, own, axis=1)


def _resolved(net: Exported, x: str, channels: int) -> str:
    """The mean of residual blocks with several kernels."""
    found = list[str]()
    for kernel in _RESIDUAL_KERNELS:
        y = x
        for dilation in (1, 3):
            edge = dilation * (kernel // 2)
            moved = net("LeakyRelu", y, alpha=0.1)
            moved = net.conv(moved, channels, channels, kernel, pads=[edge, edge], dilations=[dilation], gain=0.7)
            y = net("Add", y, moved)
        found.append(y)
    return net("Div", net("Add", net("Add", *found[:2]), found[2]), net.hold(3.0))
