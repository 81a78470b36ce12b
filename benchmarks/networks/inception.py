"""Inception-v3 (Szegedy et al. 2016, table 1 and figures 5 to 7), without the auxiliary classifier."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.networks.blocks import classify
from benchmarks.networks.builder import Tensor, concat, image
from benchmarks.networks.graph import Graph
from benchmarks.networks.window import Pair

Module = Callable[[Tensor], Tensor]


def inception_v3(graph: Graph) -> None:
    """Input `[batch, 3, 299, 299]`, output `logits` `[batch, 1000]`; module names are those of TF-Slim."""
    x = image(graph, 3, 299, 299)
    x = _unit(_unit(x, "Conv2d_1a_3x3", 32, 3, stride=2), "Conv2d_2a_3x3", 32, 3)
    x = _unit(x, "Conv2d_2b_3x3", 64, 3, pad=1).max_pool("maxpool1", 3, 2)
    x = _unit(_unit(x, "Conv2d_3b_1x1", 80), "Conv2d_4a_3x3", 192, 3).max_pool("maxpool2", 3, 2)
    for name, module in _MODULES.items():
        with graph.scope(name):
            x = module(x)
    classify(x)


def _unit(x: Tensor, name: str, channels: int, kernel: int | Pair = 1, stride: int = 1, pad: int | Pair = 0) -> Tensor:
    with x.graph.scope(name):
        x = x.conv("conv", channels, kernel, stride=stride, pad=pad, bias=False)
        return x.batch_norm("bn", epsilon=1e-3).relu("relu")


def _chain(x: Tensor, prefix: str, *steps: tuple[int, int | Pair]) -> Tensor:
    """Append units of `(channels, kernel)` that keep the size of the image."""
    for index, (channels, kernel) in enumerate(steps, start=1):
        pad = kernel // 2 if isinstance(kernel, int) else (kernel[0] // 2, kernel[1] // 2)
        x = _unit(x, f"{prefix}_{index}", channels, kernel, pad=pad)
    return x


def _pooled(x: Tensor, channels: int) -> Tensor:
    return _unit(x.average_pool("avgpool", 3, 1, pad=1), "branch_pool", channels)


def _grid35(pool: int) -> Module:
    def module(x: Tensor) -> Tensor:
        branches = [
            _unit(x, "branch1x1", 64),
            _chain(x, "branch5x5", (48, 1), (64, 5)),
            _chain(x, "branch3x3dbl", (64, 1), (96, 3), (96, 3)),
            _pooled(x, pool),
        ]
        return concat("concat", branches)

    return module


def _grid17(width: int) -> Module:
    row, column = (1, 7), (7, 1)

    def module(x: Tensor) -> Tensor:
        steps = ((width, 1), (width, column), (width, row), (width, column), (192, row))
        branches = [
            _unit(x, "branch1x1", 192),
            _chain(x, "branch7x7", (width, 1), (width, row), (192, column)),
            _chain(x, "branch7x7dbl", *steps),
            _pooled(x, 192),
        ]
        return concat("concat", branches)

    return module


def _grid8(x: Tensor) -> Tensor:
    branches = [
        _unit(x, "branch1x1", 320),
        *_fork(_chain(x, "branch3x3", (384, 1)), "branch3x3_2"),
        *_fork(_chain(x, "branch3x3dbl", (448, 1), (384, 3)), "branch3x3dbl_3"),
        _pooled(x, 192),
    ]
    return concat("concat", branches)


def _fork(x: Tensor, name: str) -> list[Tensor]:
    return [
        _unit(x, f"{name}a", 384, (1, 3), pad=(0, 1)),
        _unit(x, f"{name}b", 384, (3, 1), pad=(1, 0)),
    ]


def _reduce17(x: Tensor) -> Tensor:
    double = _chain(x, "branch3x3dbl", (64, 1), (96, 3))
    branches = [
        _unit(x, "branch3x3", 384, 3, stride=2),
        _unit(double, "branch3x3dbl_3", 96, 3, stride=2),
        x.max_pool("maxpool", 3, 2),
    ]
    return concat("concat", branches)


def _reduce8(x: Tensor) -> Tensor:
    narrow = _chain(x, "branch3x3", (192, 1))
    wide = _chain(x, "branch7x7x3", (192, 1), (192, (1, 7)), (192, (7, 1)))
    branches = [
        _unit(narrow, "branch3x3_2", 320, 3, stride=2),
        _unit(wide, "branch7x7x3_4", 192, 3, stride=2),
        x.max_pool("maxpool", 3, 2),
    ]
    return concat("concat", branches)


_MODULES: dict[str, Module] = {
    "Mixed_5b": _grid35(32),
    "Mixed_5c": _grid35(64),
    "Mixed_5d": _grid35(64),
    "Mixed_6a": _reduce17,
    "Mixed_6b": _grid17(128),
    "Mixed_6c": _grid17(160),
    "Mixed_6d": _grid17(160),
    "Mixed_6e": _grid17(192),
    "Mixed_7a": _reduce8,
    "Mixed_7b": _grid8,
    "Mixed_7c": _grid8,
}
