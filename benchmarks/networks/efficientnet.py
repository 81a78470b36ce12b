"""EfficientNet-B0 (Tan, Le 2019, table 1)."""

from __future__ import annotations

from benchmarks.networks.blocks import classify, squeeze_excite
from benchmarks.networks.builder import Tensor, image
from benchmarks.networks.graph import Graph

_EPSILON = 1e-3
# (expansion, channels, repeats, stride, kernel)
_STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)


def efficientnet_b0(graph: Graph) -> None:
    """Input `[batch, 3, 224, 224]`, output `logits` `[batch, 1000]`."""
    x = _unit(image(graph, 3, 224, 224), "features.0", 32, 3, stride=2)
    for stage, (expansion, channels, repeats, first_stride, kernel) in enumerate(_STAGES, start=1):
        for repeat in range(repeats):
            with graph.scope(f"features.{stage}.{repeat}"):
                x = _mbconv(x, expansion, channels, kernel, stride=1 if repeat else first_stride)
    classify(_unit(x, "features.8", 1280), classifier="classifier")


def _mbconv(x: Tensor, expansion: int, channels: int, kernel: int, stride: int) -> Tensor:
    inputs = x.shape[1]
    expanded = expansion * inputs
    y = _unit(x, "expand", expanded) if expansion > 1 else x
    y = _unit(y, "depthwise", expanded, kernel, stride, groups=expanded)
    with x.graph.scope("se"):
        y = squeeze_excite(y, inputs // 4, Tensor.silu, Tensor.sigmoid)
    residual = stride == 1 and inputs == channels
    y = y.conv("project.conv", channels, bias=False)
    y = y.batch_norm("project.bn", residual=residual, epsilon=_EPSILON)
    return y.add("add", x) if residual else y


def _unit(x: Tensor, name: str, channels: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> Tensor:
    with x.graph.scope(name):
        x = x.conv("conv", channels, kernel, stride=stride, pad=kernel // 2, groups=groups, bias=False)
        return x.batch_norm("bn", epsilon=_EPSILON).silu("silu")
