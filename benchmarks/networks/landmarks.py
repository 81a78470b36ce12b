"""A face mesh in the size of Kartynnik et al. 2019, and a decoder of segmentation (Ronneberger et al. 2015)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks.networks.builder import Tensor, concat, image
from benchmarks.networks.distribution import Distribution
from benchmarks.networks.graph import Graph

# (channels, blocks) of each stage, which halves the image first.
_STAGES = ((16, 2), (32, 3), (64, 3), (128, 3), (128, 3))
_POINTS = 468
_WIDTHS = (24, 48, 96, 192)


def face_mesh(graph: Graph) -> None:
    """Points of a face: `[batch, 3, 192, 192]` to `landmarks` `[batch, 1404]`, with PReLU by channel throughout."""
    x = image(graph, 3, 192, 192)
    for stage, (channels, blocks) in enumerate(_STAGES):
        with graph.scope(f"stage.{stage}"):
            x = x.conv("down", channels, 3, stride=2, pad=1, bias=False).batch_norm("down.bn")
            x = _prelu(x, "down.prelu")
            for block in range(blocks):
                with graph.scope(block):
                    x = _residual(x)
    x = _prelu(x.conv("head", 32, 1), "head.prelu")
    x.flatten("flatten").gemm("points", 3 * _POINTS).output("landmarks")


def segmentation_decoder(graph: Graph) -> None:
    """A small U-Net: `[batch, 3, 256, 256]` to `scores` `[batch, 21, 256, 256]`.

    Upwards by transposed convolutions of 2 x 2; the last doubling interpolates.
    """
    x, skips = image(graph, 3, 256, 256), []
    for level, width in enumerate(_WIDTHS):
        with graph.scope(f"encode.{level}"):
            x = x.conv("down", width, 3, stride=2, pad=1).relu("relu")
            skips.append(x)
    for level, width in reversed(list(enumerate(_WIDTHS[:-1]))):
        with graph.scope(f"decode.{level}"):
            x = concat("skip", [_doubled(x, "up", width), skips[level]])
            x = x.conv("conv1", width, 3, pad=1, bias=False).batch_norm("bn1").relu("relu1")
            x = x.conv("conv2", width, 3, pad=1, bias=False).batch_norm("bn2").relu("relu2")
    x = x.conv("classify", 21)
    batch, channels, height, width = x.shape
    scales = x.constant("scales", [1, 1, 2, 2])
    shape = (batch, channels, 2 * height, 2 * width)
    settings: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    made = x.graph.node("Resize", "resize", [x.name, "", scales], [shape], **settings)
    Tensor(graph, made[0], shape, x.distribution).output("scores")


def _residual(x: Tensor) -> Tensor:
    channels = x.shape[1]
    y = x.conv("depthwise", channels, 3, pad=1, groups=channels).conv("pointwise", channels, 1, bias=False)
    y = y.batch_norm("bn", residual=True)
    return _prelu(y.add("residual", x), "prelu")


def _prelu(x: Tensor, name: str) -> Tensor:
    slopes = x.graph.rng(name).uniform(0.05, 0.4, (x.shape[1], 1, 1))
    operand = x.graph.parameter(f"{name}.slope", slopes)
    mean = float(slopes.mean())
    return x.apply("PRelu", name, operand, distribution=x.distribution.map(lambda y: np.where(y < 0, mean * y, y)))


def _doubled(x: Tensor, name: str, channels: int) -> Tensor:
    """Append a transposed convolution of 2 x 2 that doubles the image."""
    graph, (batch, inputs, height, width) = x.graph, x.shape
    std = 1 / math.sqrt(inputs * x.distribution.power)
    weight = graph.parameter(f"{name}.weight", graph.draw(f"{name}.weight", (inputs, channels, 2, 2), std))
    bias = graph.parameter(f"{name}.bias", np.zeros(channels))
    shape = (batch, channels, 2 * height, 2 * width)
    drawn = Distribution.normal(graph.rng(f"{name}.distribution"), mean=np.zeros(channels))
    settings: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
    return x.apply("ConvTranspose", name, weight, bias, shape=shape, distribution=drawn, **settings)
