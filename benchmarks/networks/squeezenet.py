"""SqueezeNet 1.1 (Iandola et al. 2016, table 1, pooling moved forward as in the authors' release)."""

from __future__ import annotations

from benchmarks.networks.builder import Tensor, concat, image
from benchmarks.networks.graph import Graph

# (squeeze channels, expand channels); None is a pooling layer.
_FIRES = ((16, 64), (16, 64), None, (32, 128), (32, 128), None, (48, 192), (48, 192), (64, 256), (64, 256))


def squeezenet(graph: Graph, size: int = 224) -> None:
    """Input `[batch, 3, size, size]`, output `logits` `[batch, 1000]`."""
    x = image(graph, 3, size, size)
    x = x.conv("conv1", 64, 3, stride=2).relu("relu1").max_pool("pool1", 3, 2)
    for index, fire in enumerate(_FIRES, start=2):
        with graph.scope(f"layer{index}"):
            x = _fire(x, *fire) if fire else x.max_pool("pool", 3, 2)
    x = x.conv("classifier", 1000).relu("classifier.relu")
    x.global_average_pool("avgpool").flatten("flatten").output("logits")


def _fire(x: Tensor, squeezed: int, expanded: int) -> Tensor:
    x = x.conv("squeeze", squeezed).relu("squeeze.relu")
    narrow = x.conv("expand1x1", expanded).relu("expand1x1.relu")
    wide = x.conv("expand3x3", expanded, 3, pad=1).relu("expand3x3.relu")
    return concat("concat", [narrow, wide])
