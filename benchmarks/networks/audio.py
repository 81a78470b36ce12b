"""Networks for speech and text lines: a spectrogram, a detector of speech, an enhancer, and a CRNN.

Cheuk et al. 2020, nnAudio, section II (spectrograms as convolutions); Hochreiter and Schmidhuber 1997; Cho et al. 2014;
Shi et al. 2015, table 1 (CRNN).
"""

from __future__ import annotations

import numpy as np

from benchmarks.networks.builder import Tensor, image
from benchmarks.networks.graph import Graph
from benchmarks.networks.signals import convolution, raised, recurrent, signal, squeezed

_WINDOW, _HOP, _BINS, _MELS = 512, 160, 257, 64
_SMALLEST_POWER = 1e-3


def spectrogram(graph: Graph) -> None:
    """One second at 16 kHz as a logarithmic mel spectrogram: `[batch, 16000]` to `mels` `[batch, 97, 64]`."""
    x = raised(signal(graph, 16000), "channel", 1)
    parts = [convolution(x, name, _BINS, _WINDOW, _HOP) for name in ("real", "imaginary")]
    squares = [part.mul(f"{name}_square", part) for name, part in zip(("real", "imaginary"), parts, strict=True)]
    power = squares[0].add("power", squares[1]).transpose("frames", 0, 2, 1)
    # Filters of mel bands are not negative.
    filters = graph.parameter("mel.weight", np.abs(graph.draw("mel.weight", (_BINS, _MELS), 1 / _BINS)))
    mels = power.apply("MatMul", "mel", filters, shape=(*power.shape[:2], _MELS))
    mels = mels.apply("Max", "floor", mels.constant("smallest", _SMALLEST_POWER))
    # The bands' logarithms vary by a fifth of their unit.
    mels.apply("Log", "log").apply("Mul", "scale", mels.constant("fifth", 5)).output("mels")


def vad_lstm(graph: Graph) -> None:
    """Speech or not in each of 64 frames of 40 mel bands, by two LSTMs of 128; the states are carried between calls.

    Inputs `input` `[batch, 64, 40]`, and `hidden` and `memory` of each layer, `[batch, 128]`; outputs `logits`
    `[batch, 64]`, and the last states.
    """
    x = signal(graph, 64, 40).transpose("time_first", 1, 0, 2)
    for layer in range(2):
        names = [f"{state}_{layer}" for state in ("hidden", "memory")]
        states = tuple(raised(signal(graph, 128, name=name), f"{name}_raised", 0) for name in names)
        x, *last = recurrent(x, f"lstm_{layer}", "LSTM", 128, states=states)
        for name, each in zip(names, last, strict=True):
            squeezed(each, f"{name}_squeezed", 0).output(f"next_{name}")
    squeezed(x.linear("output", 1).transpose("batch_first", 1, 0, 2), "frames", 2).output("logits")


def gru_enhancer(graph: Graph) -> None:
    """A mask for 100 frames of a spectrum of 257 bins, by two GRUs of 256: `[batch, 100, 257]` to `enhanced`."""
    x = signal(graph, 100, _BINS)
    y = x.transpose("time_first", 1, 0, 2).linear("encode", 256).relu("relu")
    for layer in range(2):
        y = recurrent(y, f"gru_{layer}", "GRU", 256)[0]
    mask = y.linear("mask", _BINS).sigmoid("sigmoid").transpose("batch_first", 1, 0, 2)
    x.mul("enhance", mask).output("enhanced")


def crnn(graph: Graph) -> None:
    """A line of text, `[batch, 1, 32, 100]`, to `logits` `[batch, 24, 37]`, as in the paper but for wide pools."""
    x = image(graph, 1, 32, 100)
    x = x.conv("conv1", 64, 3, pad=1).relu("relu1").max_pool("pool1", 2, 2)
    x = x.conv("conv2", 128, 3, pad=1).relu("relu2").max_pool("pool2", 2, 2)
    x = _normed(x, "conv3", 256).conv("conv4", 256, 3, stride=(2, 1), pad=1).relu("relu4")
    x = _normed(x, "conv5", 512).conv("conv6", 512, 3, stride=(2, 1), pad=1).relu("relu6")
    x = x.conv("conv7", 512, 2).relu("relu7")
    x = squeezed(x, "row", 2).transpose("time_first", 2, 0, 1)
    for layer in range(2):
        x = recurrent(x, f"lstm_{layer}", "LSTM", 256, bidirectional=True)[0]
    x.linear("output", 37).transpose("batch_first", 1, 0, 2).output("logits")


def _normed(x: Tensor, name: str, channels: int) -> Tensor:
    y = x.conv(name, channels, 3, pad=1, bias=False)
    return y.batch_norm(f"{name}.bn").relu(f"{name}.relu")
