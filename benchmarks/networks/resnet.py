"""ResNet (He et al. 2016, table 1), and ResNetXY (ACLTuner, table 5): ResNet-50 with sizes as pruning leaves them.

The stride of a bottleneck is in its middle convolution, as in most published weights, not in its first: this
also gives the 4.1 and 16.3 billion multiplications of ACLTuner's table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.networks.blocks import classify
from benchmarks.networks.builder import Tensor, image
from benchmarks.networks.graph import Graph
from benchmarks.networks.window import Pads


@dataclass(frozen=True)
class Bottleneck:
    """Sizes of the bottlenecks of one stage: `width` channels inside, `channels` outside."""

    width: int
    channels: int
    kernels: tuple[int, int] = (1, 3)


_RESNET = (Bottleneck(64, 256), Bottleneck(128, 512), Bottleneck(256, 1024), Bottleneck(512, 2048))
_RESNET_XY = (
    Bottleneck(77, 154, (4, 6)),
    Bottleneck(97, 194, (4, 6)),
    Bottleneck(279, 558, (4, 6)),
    Bottleneck(511, 1022, (4, 6)),
)


def resnet18(graph: Graph) -> None:
    """Input `[batch, 3, 224, 224]`, output `logits` `[batch, 1000]`."""
    x = _stem(image(graph, 3, 224, 224))
    for stage, width in enumerate((64, 128, 256, 512)):
        for block in range(2):
            with graph.scope(f"layer{stage + 1}.{block}"):
                x = _basic(x, width, stride=2 if stage and not block else 1)
    classify(x)


def resnet50(graph: Graph) -> None:
    """Input `[batch, 3, 224, 224]`, output `logits` `[batch, 1000]`."""
    classify(stages(_stem(image(graph, 3, 224, 224)), (3, 4, 6, 3))[-1])


def resnet101(graph: Graph) -> None:
    """Input `[batch, 3, 224, 224]`, output `logits` `[batch, 1000]`."""
    classify(stages(_stem(image(graph, 3, 224, 224)), (3, 4, 23, 3))[-1])


def resnet_xy(graph: Graph) -> None:
    """Input `[batch, 3, 224, 224]`, output `logits` `[batch, 1000]`.

    The paper's 86.61 million parameters are those below the classifier, with batch norm's running statistics.
    """
    x = _stem(image(graph, 3, 224, 224), channels=51, kernel=14)
    classify(stages(x, (3, 4, 6, 3), _RESNET_XY)[-1])


def resnet50_features(x: Tensor) -> list[Tensor]:
    """Return the outputs of ResNet-50's four stages, at strides 4, 8, 16 and 32."""
    return stages(_stem(x), (3, 4, 6, 3))


def stages(x: Tensor, depths: Sequence[int], sizes: Sequence[Bottleneck] = _RESNET) -> list[Tensor]:
    """Append stages of `depths[i]` bottlenecks and return the output of each stage."""
    outputs = []
    for stage, (depth, size) in enumerate(zip(depths, sizes, strict=True)):
        for block in range(depth):
            with x.graph.scope(f"layer{stage + 1}.{block}"):
                x = _bottleneck(x, size, stride=2 if stage and not block else 1)
        outputs.append(x)
    return outputs


def _same(kernel: int) -> Pads:
    before, after = (kernel - 1) // 2, kernel // 2
    return before, before, after, after


def _stem(x: Tensor, channels: int = 64, kernel: int = 7) -> Tensor:
    x = x.conv("conv1", channels, kernel, stride=2, pad=_same(kernel), bias=False)
    return x.batch_norm("bn1").relu("relu").max_pool("maxpool", 3, 2, pad=1)


def _bottleneck(x: Tensor, size: Bottleneck, stride: int) -> Tensor:
    first, second = size.kernels
    y = x.conv("conv1", size.width, first, pad=_same(first), bias=False).batch_norm("bn1").relu("relu1")
    y = y.conv("conv2", size.width, second, stride=stride, pad=_same(second), bias=False)
    y = y.batch_norm("bn2").relu("relu2")
    y = y.conv("conv3", size.channels, bias=False).batch_norm("bn3", residual=True)
    return y.add("add", _shortcut(x, size.channels, stride)).relu("relu3")


def _basic(x: Tensor, width: int, stride: int) -> Tensor:
    y = x.conv("conv1", width, 3, stride=stride, pad=1, bias=False).batch_norm("bn1").relu("relu1")
    y = y.conv("conv2", width, 3, pad=1, bias=False).batch_norm("bn2", residual=True)
    return y.add("add", _shortcut(x, width, stride)).relu("relu2")


def _shortcut(x: Tensor, channels: int, stride: int) -> Tensor:
    if stride == 1 and x.shape[1] == channels:
        return x
    return x.conv("downsample.0", channels, stride=stride, bias=False).batch_norm("downsample.1")
