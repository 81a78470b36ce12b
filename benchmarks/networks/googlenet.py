"""GoogLeNet (Szegedy et al. 2015, table 1), without the auxiliary classifiers."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.networks.blocks import classify
from benchmarks.networks.builder import Tensor, concat, image
from benchmarks.networks.graph import Graph

# The paper's pooling rounds sizes up, which one more row and column of padding at the end expresses.
_ROUND_UP = (0, 0, 1, 1)


@dataclass(frozen=True)
class Inception:
    """Channels of an inception module, in the order of the paper's columns."""

    direct: int
    reduce3: int
    conv3: int
    reduce5: int
    conv5: int
    pool: int


_STAGES = {
    3: {"a": Inception(64, 96, 128, 16, 32, 32), "b": Inception(128, 128, 192, 32, 96, 64)},
    4: {
        "a": Inception(192, 96, 208, 16, 48, 64),
        "b": Inception(160, 112, 224, 24, 64, 64),
        "c": Inception(128, 128, 256, 24, 64, 64),
        "d": Inception(112, 144, 288, 32, 64, 64),
        "e": Inception(256, 160, 320, 32, 128, 128),
    },
    5: {"a": Inception(256, 160, 320, 32, 128, 128), "b": Inception(384, 192, 384, 48, 128, 128)},
}


def googlenet(graph: Graph) -> None:
    """Input `[batch, 3, 224, 224]`, output `logits` `[batch, 1000]`."""
    x = image(graph, 3, 224, 224)
    x = x.conv("conv1", 64, 7, stride=2, pad=3).relu("conv1.relu").max_pool("pool1", 3, 2, pad=_ROUND_UP)
    x = _conv(x.local_response_norm("norm1", bias=1.0), "conv2.reduce", 64)
    x = _conv(x, "conv2", 192, 3).local_response_norm("norm2", bias=1.0)
    for stage, modules in _STAGES.items():
        x = x.max_pool(f"pool{stage - 1}", 3, 2, pad=_ROUND_UP)
        for letter, sizes in modules.items():
            with graph.scope(f"inception{stage}{letter}"):
                x = _inception(x, sizes)
    classify(x)


def _inception(x: Tensor, sizes: Inception) -> Tensor:
    branches = [
        _conv(x, "1x1", sizes.direct),
        _conv(_conv(x, "3x3_reduce", sizes.reduce3), "3x3", sizes.conv3, 3),
        _conv(_conv(x, "5x5_reduce", sizes.reduce5), "5x5", sizes.conv5, 5),
        _conv(x.max_pool("pool", 3, 1, pad=1), "pool_proj", sizes.pool),
    ]
    return concat("concat", branches)


def _conv(x: Tensor, name: str, channels: int, kernel: int = 1) -> Tensor:
    return x.conv(name, channels, kernel, pad=kernel // 2).relu(f"{name}.relu")
