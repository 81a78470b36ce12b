"""Networks that hear speech frame by frame and keep what they remember: a detector and an enhancer.

The detector has the sizes of Silero's at 16 kHz (version 5), the enhancer those of GTCRN (Rong et al. 2024), whose
streaming export has these names and caches; its blocks are simpler.
"""

from __future__ import annotations

from typing import Any

import onnx

from benchmarks.networks.exported import Exported

# Samples of a call with those of the last one, the filters of the transform, and what blocks make of its bins.
_SAMPLES, _FILTERS, _KERNEL, _HOP = 576, 258, 256, 128
_BLOCKS = ((129, 128, 1), (128, 64, 2), (64, 64, 2), (64, 128, 1))
_HIDDEN = 128
_BINS, _CHANNELS, _BANDS = 257, 16, 33
_DILATIONS = (1, 2, 5)
_FAR = 2**31 - 1


def vad_stream(seed: int = 0) -> onnx.ModelProto:
    """The probability of speech in 32 ms: a spectrum by convolution, four blocks and an LSTM, whose ``state`` has both
    the hidden and the cell state, as ``stateN`` has them for the next call."""
    net = Exported("vad_stream", seed)
    x, state = net.input("input", [1, _SAMPLES]), net.input("state", [2, 1, _HIDDEN])
    x = net("Pad", x, net.numbers(0, 0, 0, _HOP // 2), mode="reflect")
    x = net("Unsqueeze", x, net.numbers(1))
    x = net("Conv", x, net.hold(net.drawn(_FILTERS, 1, _KERNEL, spread=0.1)), strides=[_HOP])
    real, imaginary = net.several("Split", x, outputs=("", ""), axis=1)
    x = net("Sqrt", net("Add", net("Mul", real, real), net("Mul", imaginary, imaginary)))
    for inputs, channels, stride in _BLOCKS:
        x = net("Relu", net.conv(x, inputs, channels, 3, pads=[1, 1], strides=[stride]))
    x = net("Transpose", x, perm=[2, 0, 1])
    first = [net("Unsqueeze", net("Gather", state, net.whole(each), axis=0), net.numbers(0)) for each in (0, 1)]
    x, *last = net.recurrent("LSTM", x, _HIDDEN, _HIDDEN, first)
    net("Concat", *last, output="stateN", axis=0)
    x = net("Relu", net("Transpose", net("Squeeze", x, net.numbers(1)), perm=[1, 2, 0]))
    x = net("Sigmoid", net.conv(x, _HIDDEN, 1, 1))
    net("ReduceMean", x, output="output", axes=[2], keepdims=0)
    net.output("output", [1, 1])
    net.output("stateN", [2, 1, _HIDDEN])
    return net.model()


def enhancer_stream(seed: int = 0) -> onnx.ModelProto:
    """A frame of a spectrum, ``mix`` `[1, 257, 1, 2]`, to ``enh``: ``conv_cache`` has earlier frames of dilated
    convolutions, ``tra_cache`` and ``inter_cache`` the states of GRUs over time."""
    net = Exported("enhancer_stream", seed)
    mix = net.input("mix", [1, _BINS, 1, 2])
    rows = 2 * sum(_DILATIONS)
    caches = {
        "conv_cache": [2, 1, _CHANNELS, rows, _BANDS],
        "tra_cache": [2, len(_DILATIONS), 1, 1, _CHANNELS],
        "inter_cache": [2, 1, _BANDS, _CHANNELS],
    }
    for name, dims in caches.items():
        net.input(name, dims)
    spectrum = net("Transpose", mix, perm=[0, 3, 2, 1])
    real, imaginary = net.several("Split", spectrum, outputs=("", ""), axis=1)
    power = net("Add", net("Mul", real, real), net("Mul", imaginary, imaginary))
    x = net("Concat", net("Sqrt", net("Add", power, net.hold(1e-12))), real, imaginary, axis=1)
    x = net.linear(x, _BINS, 129, bias=False)
    x = _activated(net, net.conv(x, 3, _CHANNELS, 1, 5, pads=[0, 2, 0, 2], strides=[1, 2]))
    x = _activated(net, net.conv(x, _CHANNELS, _CHANNELS, 1, 5, pads=[0, 2, 0, 2], strides=[1, 2], group=2))
    memory = _Memory(net)
    x = memory.blocks(x, 0)
    for which in range(2):
        x = memory.over_time(_over_bands(net, x), which)
    x = memory.blocks(x, 1)
    upward: dict[str, Any] = {"pads": [0, 2, 0, 2], "strides": [1, 2]}
    x = _activated(net, net.transposed(x, _CHANNELS, _CHANNELS, 1, 5, group=2, **upward))
    mask = net.linear(net("Tanh", net.transposed(x, _CHANNELS, 2, 1, 5, gain=0.5, **upward)), 129, _BINS, bias=False)
    own, other = net.several("Split", mask, outputs=("", ""), axis=1)
    parts = (
        net("Sub", net("Mul", real, own), net("Mul", imaginary, other)),
        net("Add", net("Mul", real, other), net("Mul", imaginary, own)),
    )
    net("Transpose", net("Concat", *parts, axis=1), output="enh", perm=[0, 3, 2, 1])
    net.output("enh", [1, _BINS, 1, 2])
    memory.finish()
    for name, dims in caches.items():
        net.output(f"{name}_out", dims)
    return net.model()


def _activated(net: Exported, x: str) -> str:
    return net("PRelu", x, net.hold(net.random.uniform(0.1, 0.3, (_CHANNELS, 1, 1))))


def _over_bands(net: Exported, x: str) -> str:
    """A GRU over the bands of a frame, and a residual."""
    steps = net("Reshape", net("Transpose", x, perm=[3, 0, 2, 1]), net.numbers(_BANDS, 1, _CHANNELS))
    none = net.hold(net.drawn(1, 1, _CHANNELS, spread=0.0))
    y, _ = net.recurrent("GRU", steps, _CHANNELS, _CHANNELS, [none])
    y = net.linear(net("Squeeze", y, net.numbers(1)), _CHANNELS, _CHANNELS, gain=0.5)
    return net("Add", x, net("Transpose", net("Reshape", y, net.numbers(_BANDS, 1, 1, _CHANNELS)), perm=[1, 3, 2, 0]))


class _Memory:
    """What the enhancer remembers, which is cut out of the caches, and put together for the next call."""

    def __init__(self, net: Exported) -> None:
        self._net = net
        self._new = dict[str, list[str]](conv_cache=[], tra_cache=[], inter_cache=[])

    def blocks(self, x: str, which: int) -> str:
        """Dilated convolutions over earlier frames, each weighed by a GRU over its energy."""
        net, frames, begin = self._net, list[str](), 0
        cache = net("Gather", "conv_cache", net.whole(which), axis=0)
        weights = net("Gather", "tra_cache", net.whole(which), axis=0)
        states = list[str]()
        for index, dilation in enumerate(_DILATIONS):
            rows = 2 * dilation
            earlier = net("Slice", cache, net.numbers(begin), net.numbers(begin + rows), net.numbers(2))
            begin += rows
            y = _activated(net, net.conv(x, _CHANNELS, _CHANNELS, 1, 1))
            joined = net("Concat", earlier, y, axis=2)
            frames.append(net("Slice", joined, net.numbers(1), net.numbers(_FAR), net.numbers(2)))
            y = net.conv(
                joined, _CHANNELS, _CHANNELS, 3, 3, dilations=[dilation, 1], pads=[0, 1, 0, 1], group=_CHANNELS
            )
            y = net.conv(_activated(net, y), _CHANNELS, _CHANNELS, 1, 1)
            y, state = self._weighed(y, net("Gather", weights, net.whole(index), axis=0))
            states.append(net("Unsqueeze", state, net.numbers(0)))
            x = net("Add", x, y)
        self._keep("conv_cache", net("Concat", *frames, axis=2))
        self._keep("tra_cache", net("Concat", *states, axis=0))
        return x

    def _weighed(self, x: str, state: str) -> tuple[str, str]:
        net = self._net
        energy = net("ReduceMean", net("Mul", x, x), axes=[-1], keepdims=0)
        y, last = net.recurrent("GRU", net("Transpose", energy, perm=[2, 0, 1]), _CHANNELS, _CHANNELS, [state])
        share = net("Sigmoid", net.linear(net("Squeeze", y, net.numbers(1)), _CHANNELS, _CHANNELS))
        return net("Mul", x, net("Unsqueeze", net("Transpose", share, perm=[1, 2, 0]), net.numbers(3))), last

    def over_time(self, x: str, which: int) -> str:
        """A GRU over frames, with a state for each band."""
        net = self._net
        state = net("Gather", "inter_cache", net.whole(which), axis=0)
        step = net("Reshape", net("Transpose", x, perm=[2, 0, 3, 1]), net.numbers(1, _BANDS, _CHANNELS))
        y, last = net.recurrent("GRU", step, _CHANNELS, _CHANNELS, [state])
        self._keep("inter_cache", last)
        y = net.linear(net("Squeeze", y, net.numbers(1)), _CHANNELS, _CHANNELS, gain=0.5)
        return net(
            "Add", x, net("Transpose", net("Reshape", y, net.numbers(1, 1, _BANDS, _CHANNELS)), perm=[0, 3, 1, 2])
        )

    def _keep(self, name: str, value: str) -> None:
        self._new[name].append(self._net("Unsqueeze", value, self._net.numbers(0)))

    def finish(self) -> None:
        """Give the caches as the next call takes them."""
        for name, values in self._new.items():
            self._net("Concat", *values, output=f"{name}_out", axis=0)
