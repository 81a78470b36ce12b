"""Convolutions for Vulkan as named ops in a dispatch of their own, by IREE's code in tile sizes that are searched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sartor.codegen.analysis.convolution import Convolution, Window, convolution_of, window_of
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.layouts import CHANNELS_LAST
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected, integer, integers
from sartor.codegen.ir.variants.traits import TILED_SLOWDOWN, Traits
from sartor.codegen.mlir.regions.named_region import NamedConvolution, RegionTiling, keep_in_region
from sartor.codegen.mlir.rewriting.rewrite import Rewrite, rewritten

# Numbers that an invocation loads at once.
_VECTOR = 4
_MOST_CHANNELS = 64
_INVOCATIONS_ALONG = (4, 2, 1)
_TILES = 3


@dataclass(frozen=True)
class RegionConvolution:
    """Convolution, also depthwise with images in NHWC.

    Parameters: ``workgroup`` and ``invocation``, their parts of the result without the batch, in the order of its
    dimensions, and ``depth``, input channels per step.

    Attributes:
        name: the algorithm in descriptors.
        channels_last: whether images lie in NHWC; else in NCHW.
    """

    name: str = "region"
    channels_last: bool = True

    @property
    def traits(self) -> Traits:
        return Traits("region", slowdown=TILED_SLOWDOWN, beside_kernels=frozenset())

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        if not target.is_vulkan:
            return Rejected("its tile sizes are for Vulkan")
        matched = self._match(task)
        if isinstance(matched, Rejected):
            return matched
        batches, channels, height, width = matched.result.shape
        vectors = channels if self.channels_last else width
        if batches != 1 or vectors % _VECTOR:
            return Rejected(f"it has several images, or {vectors} adjacent numbers are no multiple of {_VECTOR}")
        depth = matched.filter.shape[1] if isinstance(matched, Convolution) else 1
        step = _VECTOR if depth % _VECTOR == 0 else 1
        tiles = _last(channels, height, width) if self.channels_last else _first(channels, height, width)
        listed: list[Parameters] = [
            {"workgroup": tile, "invocation": part, "depth": step} for tile, part in dict.fromkeys(tiles)
        ]
        return listed[:_TILES]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        matched = self._match(task)
        if isinstance(matched, Rejected):
            return matched
        rewrite = Rewrite.images(task, CHANNELS_LAST) if self.channels_last else Rewrite.plain(task)
        named = NamedConvolution(self._op(matched), matched.strides, matched.dilations)
        tiling = self._tiling(matched, parameters)
        return rewritten(rewrite, lambda layer_rewrite: keep_in_region(layer_rewrite, named, tiling), target)

    def _match(self, task: Task) -> Convolution | Window | Rejected:
        window = window_of(task) if self.channels_last else None
        matched = convolution_of(task) or (window if window is not None and window.is_weighted else None)
        return matched or Rejected("not a two-dimensional convolution without groups, nor depthwise in NHWC")

    def _op(self, matched: Convolution | Window) -> str:
        if isinstance(matched, Window):
            return "depthwise_conv_2d_nhwc_hwc"
        return "conv_2d_nhwc_hwcf" if self.channels_last else "conv_2d_nchw_fchw"

    def _tiling(self, matched: Convolution | Window, parameters: Parameters) -> RegionTiling:
        depth = integer(parameters["depth"])
        if isinstance(matched, Window):
            reduction: tuple[int, ...] = (1, 1)
        else:
            reduction = (1, 1, depth) if self.channels_last else (depth, 1, 1)
        workgroup, invocation = (integers(parameters[name]) for name in ("workgroup", "invocation"))
        return RegionTiling((0, *workgroup), (1, *invocation), reduction, 1 if self.channels_last else 2)


Tile = tuple[tuple[int, int, int], tuple[int, int, int]]


def _last(channels: int, height: int, width: int) -> Iterator[Tile]:
    """Parts of workgroups and invocations along H, W and C."""
    along = _divisor(channels, range(min(channels, _MOST_CHANNELS), 0, -_VECTOR))
    for rows, columns in ((2, 4), (1, 4), (2, 2), (1, 7), (1, 2), (1, 1)):
        if height % rows == 0 and width % columns == 0:
            wide = _divisor(width // columns, _INVOCATIONS_ALONG)
            yield (rows, wide * columns, along), (rows, columns, _VECTOR)


def _first(channels: int, height: int, width: int) -> Iterator[Tile]:
    """Parts of workgroups and invocations along C, H and W."""
    wide = _divisor(width // _VECTOR, (8, *_INVOCATIONS_ALONG))
    for deep in (8, 4, 2, 1):
        if channels % deep == 0:
            rows, along = _divisor(height, _INVOCATIONS_ALONG), _divisor(channels // deep, _INVOCATIONS_ALONG)
            yield (along * deep, rows, wide * _VECTOR), (deep, 1, _VECTOR)


def _divisor(extent: int, sizes: range | tuple[int, ...]) -> int:
    """The first of some sizes that divides an extent."""
    return next(size for size in sizes if extent % size == 0)
