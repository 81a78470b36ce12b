"""ShuffleNetV2 (Ma et al. 2018, figure 3 and table 5)."""

from __future__ import annotations

import numpy as np

from benchmarks.networks.blocks import classify
from benchmarks.networks.builder import Tensor, concat, image
from benchmarks.networks.graph import Graph


def shufflenet_v2(graph: Graph) -> None:
    """Width 1.0: input `[batch, 3, 224, 224]`, output `logits` `[batch, 1000]`."""
    x = image(graph, 3, 224, 224)
    x = _pointwise(x, "conv1", 24, kernel=3, stride=2).max_pool("maxpool", 3, 2, pad=1)
    for stage, (channels, repeats) in enumerate(((116, 4), (232, 8), (464, 4)), start=2):
        for unit in range(repeats):
            with graph.scope(f"stage{stage}.{unit}"):
                x = _unit(x) if unit else _downsample(x, channels)
    classify(_pointwise(x, "conv5", 1024))


def _unit(x: Tensor) -> Tensor:
    kept, worked = x.split("split", 2, axis=1)
    return _shuffle(concat("concat", [kept, _branch(worked, worked.shape[1], stride=1)]))


def _downsample(x: Tensor, channels: int) -> Tensor:
    half = channels // 2
    left = _pointwise(_depthwise(x, "branch1.depthwise", stride=2), "branch1.pointwise", half)
    return _shuffle(concat("concat", [left, _branch(x, half, stride=2)]))


def _branch(x: Tensor, channels: int, stride: int) -> Tensor:
    x = _pointwise(x, "branch2.pointwise1", channels)
    return _pointwise(_depthwise(x, "branch2.depthwise", stride), "branch2.pointwise2", channels)


def _pointwise(x: Tensor, name: str, channels: int, kernel: int = 1, stride: int = 1) -> Tensor:
    with x.graph.scope(name):
        x = x.conv("conv", channels, kernel, stride=stride, pad=kernel // 2, bias=False)
        return x.batch_norm("bn").relu("relu")


def _depthwise(x: Tensor, name: str, stride: int) -> Tensor:
    with x.graph.scope(name):
        return x.conv("conv", x.shape[1], 3, stride=stride, pad=1, groups=x.shape[1], bias=False).batch_norm("bn")


def _shuffle(x: Tensor) -> Tensor:
    """Interleave the two halves of the channels."""
    batch, channels, height, width = x.shape
    with x.graph.scope("shuffle"):
        order = np.arange(channels).reshape(2, -1).T.reshape(-1)
        shuffled = x.distribution.map(lambda sample: sample[order])
        x = x.reshape("split", batch, 2, channels // 2, height, width).transpose("transpose", 0, 2, 1, 3, 4)
        return x.reshape("merge", batch, channels, height, width, distribution=shuffled)
