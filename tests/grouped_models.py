"""Convolutions in groups, and what surrounds them in networks."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto

from tests.tiny_models import Builder

CHANNELS, SIZE = 64, 12
IMAGE = (1, CHANNELS, SIZE, SIZE)
GROUPS = 16
"""Of four channels: a convolution of four groups at a time fills vectors of 16, of two such of 8."""


def bottleneck() -> ModelProto:
    """A block of ResNeXt: 1x1, 3x3 in groups, 1x1 and a residual."""
    b = Builder()
    first = b.op("Relu", "relu1", b.conv("conv1", "x", (CHANNELS, CHANNELS), kernel=1))
    second = b.op("Relu", "relu2", b.conv("conv2", first, (CHANNELS, CHANNELS), group=GROUPS))
    b.op("Relu", "y", b.op("Add", "sum", b.conv("conv3", second, (CHANNELS, CHANNELS), kernel=1), "x"))
    return b.model([("x", IMAGE)], [("y", IMAGE)])


def strided() -> ModelProto:
    """Twice as many channels after as before, a stride, zeros on two sides only, and no bias."""
    b = Builder()
    weight = b.weight(2 * CHANNELS, CHANNELS // GROUPS, 3, 3)
    b.op("Conv", "y", "x", weight, group=GROUPS, strides=[2, 2], pads=[1, 1, 0, 0])
    return b.model([("x", IMAGE)], [("y", (1, 2 * CHANNELS, SIZE // 2, SIZE // 2))])


def dilated_with_residual() -> ModelProto:
    """What another layer made is added, which no single channel's convolution can take in."""
    b = Builder()
    weight, bias = b.weight(CHANNELS, CHANNELS // GROUPS, 3, 3), b.weight(CHANNELS)
    y = b.op("Conv", "conv", "x", weight, bias, group=GROUPS, dilations=[2, 2], pads=[2] * 4)
    b.op("Sigmoid", "y", b.op("Add", "sum", y, "z"))
    return b.model([("x", IMAGE), ("z", IMAGE)], [("y", IMAGE)])


def slopes() -> ModelProto:
    """A slope for each channel, which is one weight more."""
    b = Builder()
    b.op("PRelu", "y", b.conv("conv", "x", (CHANNELS, CHANNELS), group=GROUPS), b.weight(CHANNELS, 1, 1))
    return b.model([("x", IMAGE)], [("y", IMAGE)])


def odd_groups() -> ModelProto:
    """Eleven groups of three channels, which fill no vector."""
    b = Builder()
    b.op("Relu", "y", b.conv("conv", "x", (33, 33), group=11))
    return b.model([("x", (1, 33, SIZE, SIZE))], [("y", (1, 33, SIZE, SIZE))])


def added_to_itself() -> ModelProto:
    """The image that is convolved is read again by what follows."""
    b = Builder()
    b.op("Add", "y", b.conv("conv", "x", (CHANNELS, CHANNELS), group=GROUPS), "x")
    return b.model([("x", IMAGE)], [("y", IMAGE)])


def wide_groups() -> ModelProto:
    """Groups that are each as much work as a layer of a ResNet."""
    b = Builder()
    channels = 64 * GROUPS
    weight = b.constant(np.ones((channels, 64, 3, 3), np.float32))
    b.op("Conv", "y", "x", weight, group=GROUPS, pads=[1] * 4)
    return b.model([("x", (1, channels, 28, 28))], [("y", (1, channels, 28, 28))])


def dense() -> ModelProto:
    """A convolution without groups, large enough for a product to gain."""
    b = Builder()
    b.op("Relu", "y", b.conv("conv", "x", (64, 64)))
    return b.model([("x", (1, 64, 28, 28))], [("y", (1, 64, 28, 28))])


def odd_square() -> ModelProto:
    """A 3x3 convolution over an odd number of pixels and channels, with a slope for each channel and a residual."""
    b = Builder()
    sums = b.op("PRelu", "slope", b.conv("conv", "x", (17, 19)), b.weight(19, 1, 1))
    b.op("Add", "y", sums, "z")
    return b.model([("x", (2, 17, 21, 27)), ("z", (2, 19, 21, 27))], [("y", (2, 19, 21, 27))])


def wide_filter() -> ModelProto:
    """A 1x5 convolution without bias, of which zeros are on one side only."""
    b = Builder()
    b.op("Conv", "y", "x", b.weight(40, 48, 1, 5), pads=[0, 3, 0, 0])
    return b.model([("x", (1, 48, 7, 21))], [("y", (1, 40, 7, 20))])


def transposed_line() -> ModelProto:
    """A transposed convolution with three groups and one spatial dimension."""
    b = Builder()
    b.op("ConvTranspose", "y", "x", b.weight(3, 5, 7), group=3, strides=[2], pads=[1, 1])
    return b.model([("x", (1, 3, 16))], [("y", (1, 15, 35))])
