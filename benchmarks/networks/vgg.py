"""VGG (Simonyan, Zisserman 2015, table 1)."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.networks.builder import image
from benchmarks.networks.graph import Graph

_WIDTHS = (64, 128, 256, 512, 512)


def vgg16(graph: Graph) -> None:
    """Configuration D: input `[batch, 3, 224, 224]`, output `logits` `[batch, 1000]`."""
    _vgg(graph, (2, 2, 3, 3, 3))


def vgg19(graph: Graph) -> None:
    """Configuration E: input `[batch, 3, 224, 224]`, output `logits` `[batch, 1000]`."""
    _vgg(graph, (2, 2, 4, 4, 4))


def _vgg(graph: Graph, depths: Sequence[int]) -> None:
    x = image(graph, 3, 224, 224)
    for stage, (depth, width) in enumerate(zip(depths, _WIDTHS, strict=True), start=1):
        for layer in range(1, depth + 1):
            x = x.conv(f"conv{stage}_{layer}", width, 3, pad=1).relu(f"relu{stage}_{layer}")
        x = x.max_pool(f"pool{stage}", 2, 2)
    x = x.flatten("flatten").gemm("fc6", 4096).relu("relu6")
    x.gemm("fc7", 4096).relu("relu7").gemm("fc8", 1000).output("logits")
