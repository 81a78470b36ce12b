"""SSD (Liu et al. 2016, figure 2) on ResNet-50 for 512 x 512 images, the Gluon model of NeoCPU (section 4).

Stages at strides 16 and 32 and four extra layers each feed a class head and a box head. Suppression of
overlapping boxes is left out: it is control flow on a few thousand numbers, not a network.
"""

from __future__ import annotations

from benchmarks.networks.builder import Tensor, concat, image
from benchmarks.networks.graph import Graph
from benchmarks.networks.resnet import resnet50_features

_CLASSES = 21  # Pascal VOC and background
_EXTRA_CHANNELS = (512, 512, 256, 256)
_BOXES_PER_POSITION = (4, 6, 6, 6, 4, 4)


def ssd_resnet50(graph: Graph) -> None:
    """Input `[batch, 3, 512, 512]`.

    Outputs `class_scores` `[batch, 6132, 21]`, after the softmax, and `box_offsets` `[batch, 6132, 4]`.
    """
    features = resnet50_features(image(graph, 3, 512, 512))[2:]
    for index, channels in enumerate(_EXTRA_CHANNELS):
        with graph.scope(f"extra.{index}"):
            features.append(_extra(features[-1], channels))
    heads = list(zip(features, _BOXES_PER_POSITION, strict=True))
    scores = [_head(x, f"class_head.{i}", boxes, _CLASSES) for i, (x, boxes) in enumerate(heads)]
    offsets = [_head(x, f"box_head.{i}", boxes, 4) for i, (x, boxes) in enumerate(heads)]
    concat("class_concat", scores).softmax("class_softmax").output("class_scores")
    concat("box_concat", offsets).output("box_offsets")


def _extra(x: Tensor, channels: int) -> Tensor:
    x = x.conv("reduce", channels, bias=False).batch_norm("reduce.bn").relu("reduce.relu")
    return x.conv("conv", channels, 3, stride=2, pad=1, bias=False).batch_norm("bn").relu("relu")


def _head(x: Tensor, name: str, boxes: int, values: int) -> Tensor:
    """Predict `values` numbers for each box; the result is `[batch, positions * boxes, values]`."""
    with x.graph.scope(name):
        y = x.conv("conv", boxes * values, 3, pad=1).transpose("transpose", 0, 2, 3, 1)
        batch, height, width, _ = y.shape
        return y.reshape("reshape", batch, height * width * boxes, values)
