"""DenseNet-121, growth rate 32 (Huang et al. 2017, table 1)."""

from __future__ import annotations

from benchmarks.networks.blocks import classify
from benchmarks.networks.builder import Tensor, concat, image
from benchmarks.networks.graph import Graph

_GROWTH = 32
_DEPTHS = (6, 12, 24, 16)


def densenet121(graph: Graph) -> None:
    """Input `[batch, 3, 224, 224]`, output `logits` `[batch, 1000]`."""
    x = image(graph, 3, 224, 224).conv("conv0", 64, 7, stride=2, pad=3, bias=False)
    x = x.batch_norm("norm0").relu("relu0").max_pool("pool0", 3, 2, pad=1)
    for block, depth in enumerate(_DEPTHS, start=1):
        if block > 1:
            with graph.scope(f"transition{block - 1}"):
                x = _transition(x)
        for layer in range(1, depth + 1):
            with graph.scope(f"denseblock{block}.denselayer{layer}"):
                x = _dense_layer(x)
    classify(x.batch_norm("norm5").relu("relu5"), classifier="classifier")


def _dense_layer(x: Tensor) -> Tensor:
    y = x.batch_norm("norm1").relu("relu1").conv("conv1", 4 * _GROWTH, bias=False)
    y = y.batch_norm("norm2").relu("relu2").conv("conv2", _GROWTH, 3, pad=1, bias=False)
    return concat("concat", [x, y])


def _transition(x: Tensor) -> Tensor:
    x = x.batch_norm("norm").relu("relu").conv("conv", x.shape[1] // 2, bias=False)
    return x.average_pool("pool", 2, 2)
