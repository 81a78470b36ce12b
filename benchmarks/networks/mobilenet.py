"""MobileNet v1, v2 and v3-Large.

Howard et al. 2017, table 1; Sandler et al. 2018, table 2; Howard et al. 2019, table 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.networks.blocks import Activation, classify, divisible, squeeze_excite
from benchmarks.networks.builder import Tensor, image
from benchmarks.networks.graph import Graph


@dataclass(frozen=True)
class Inverted:
    """An inverted residual: expand to `expanded` channels, filter depthwise, project to `channels`."""

    expanded: int
    channels: int
    kernel: int = 3
    stride: int = 1
    squeeze: bool = False
    activation: Activation = Tensor.relu6
    epsilon: float = 1e-5


# (channels, stride)
_V1 = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
# (expansion, channels, repeats, stride)
_V2 = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
# (kernel, expanded, channels, squeeze, hard swish, stride)
_V3 = (
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
)


def mobilenet_v1(graph: Graph) -> None:
    """Width 1.0: input `[batch, 3, 224, 224]`, output `logits` `[batch, 1000]`."""
    x = _unit(image(graph, 3, 224, 224), "stem", 32, 3, stride=2, activation=Tensor.relu)
    for index, (channels, stride) in enumerate(_V1, start=1):
        with graph.scope(f"block{index}"):
            x = _unit(x, "depthwise", x.shape[1], 3, stride, groups=x.shape[1], activation=Tensor.relu)
            x = _unit(x, "pointwise", channels, activation=Tensor.relu)
    classify(x)


def mobilenet_v2(graph: Graph, size: int = 224, most_repeats: int = 4) -> None:
    """Width 1.0: input `[batch, 3, size, size]`, output `logits` `[batch, 1000]`; with fewer than 4 repeats of a block
    it is shallower than the network of the paper."""
    x = _unit(image(graph, 3, size, size), "features.0", 32, 3, stride=2)
    index = 1
    for expansion, channels, repeats, first_stride in _V2:
        for repeat in range(min(repeats, most_repeats)):
            block = Inverted(expansion * x.shape[1], channels, stride=1 if repeat else first_stride)
            with graph.scope(f"features.{index}"):
                x = _inverted(x, block)
            index += 1
    classify(_unit(x, f"features.{index}", 1280), classifier="classifier")


def mobilenet_v3(graph: Graph) -> None:
    """V3-Large, width 1.0: input `[batch, 3, 224, 224]`, output `logits` `[batch, 1000]`."""
    stem = image(graph, 3, 224, 224)
    x = _unit(stem, "features.0", 16, 3, stride=2, activation=Tensor.hard_swish, epsilon=1e-3)
    for index, (kernel, expanded, channels, squeeze, swish, stride) in enumerate(_V3, start=1):
        activation = Tensor.hard_swish if swish else Tensor.relu
        with graph.scope(f"features.{index}"):
            x = _inverted(x, Inverted(expanded, channels, kernel, stride, squeeze, activation, 1e-3))
    x = _unit(x, "features.16", 960, activation=Tensor.hard_swish, epsilon=1e-3)
    x = x.global_average_pool("avgpool").flatten("flatten")
    x.gemm("classifier.0", 1280).hard_swish("classifier.1").gemm("classifier.3", 1000).output("logits")


def _unit(
    x: Tensor,
    name: str,
    channels: int,
    kernel: int = 1,
    stride: int = 1,
    *,
    groups: int = 1,
    activation: Activation = Tensor.relu6,
    epsilon: float = 1e-5,
) -> Tensor:
    with x.graph.scope(name):
        x = x.conv("conv", channels, kernel, stride=stride, pad=kernel // 2, groups=groups, bias=False)
        return activation(x.batch_norm("bn", epsilon=epsilon), "activation")


def _inverted(x: Tensor, block: Inverted) -> Tensor:
    activation, epsilon = block.activation, block.epsilon
    y = x
    if block.expanded != x.shape[1]:
        y = _unit(y, "expand", block.expanded, activation=activation, epsilon=epsilon)
    y = _unit(
        y,
        "depthwise",
        block.expanded,
        block.kernel,
        block.stride,
        groups=block.expanded,
        activation=activation,
        epsilon=epsilon,
    )
    if block.squeeze:
        with x.graph.scope("se"):
            y = squeeze_excite(y, divisible(block.expanded / 4), Tensor.relu, Tensor.hard_sigmoid)
    residual = block.stride == 1 and x.shape[1] == block.channels
    y = y.conv("project.conv", block.channels, bias=False)
    y = y.batch_norm("project.bn", residual=residual, epsilon=epsilon)
    return y.add("add", x) if residual else y
