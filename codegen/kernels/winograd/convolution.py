"""A convolution layer by Winograd's method: packing of filters, and tilings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from sartor.codegen.analysis.convolution import Convolution
from sartor.codegen.analysis.winograd_tiles import OutputTile
from sartor.codegen.ir.encoded_filters import QuantiseEncoded
from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.packing import Quantise, Reshape, Round, Step, Transpose, WinogradFilter, cut
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.winograd import MOST_POINTS_OF_INTEGERS, exact_transforms
from sartor.codegen.kernels.isa.multipliers import FMA, DotElement, Multiplier, check_sums
from sartor.codegen.kernels.isa.word_pairs import EncodedPairs, WordPairElement
from sartor.codegen.kernels.layers.convolution_operands import convolution_operands
from sartor.codegen.kernels.layers.image_layer import ImageLayer
from sartor.codegen.kernels.loops.tilings import Shape, register_shapes
from sartor.codegen.kernels.winograd.geometry import WinogradConvolution, WinogradTiling
from sartor.codegen.mlir.machine import Machine

# Workspaces that share a second-level cache with the filters: of 1 MiB, and of 2 MiB. Every block reads all filters, so
# smaller ones would read them more often than encoded tiles save.
_SMALL_BYTES, _RESIDENT_BYTES = 320 << 10, 1 << 20
# Larger filters come from memory each time. Then a larger workspace, in the third-level cache, costs less.
_STREAMED_FILTERS = 1 << 23
_STREAMED_BYTES = 1 << 22
# The code may run with more threads than it was tuned for.
_LEAST_GROUPS = 2
# Register tiles are made smaller if a GPU would have too few workgroups.
_SHARES, _BUSY_SHARE, _TRIED_IN_SUBGROUPS = (1, 2, 4), 2, 2
_MANY_GROUPS = 8
_FLOAT_BYTES = 4
_LANES_OF_512 = 16
_PAIR = 2


def winograd_convolution(
    layer: ImageLayer,
    convolution: Convolution,
    tiling: WinogradTiling,
    element: DotElement | None = None,
    *,
    transforms_filters: bool = False,
) -> WinogradConvolution:
    """The sizes of a layer's kernel; sets the packing of its filters, which are transformed and rounded.

    Args:
        layer: the layer that becomes a kernel.
        convolution: its root.
        tiling: sizes of tiles.
        element: instruction that multiplies groups, to whose type filters are rounded; None for f32. That for pairs of
            16-bit numbers multiplies what 8 bits become, without rounding.
        transforms_filters: whether filters, in f32, are stored as in the model and transformed by the kernel.

    Raises:
        RejectionError: if the layer cannot be computed so.
    """
    batches, channels, *_ = convolution.result.shape
    depth, panel = convolution.filter.shape[1], tiling.vectors * layer.lanes
    tile = OutputTile(tiling.height, tiling.width)
    if isinstance(element, WordPairElement):
        packing = _exact_packing(convolution, tile, panel)
    elif element is not None and element.is_quantised:
        if layer.lanes != _LANES_OF_512:
            raise RejectionError("integers are encoded in vectors of 64 bytes")
        packing = _integer_packing(convolution, tile, panel, element.group)
    elif transforms_filters:
        packing = _plain_packing(convolution, panel)
    else:
        packing = _packing(convolution, tile, panel, element)
    read = convolution_operands(layer, convolution, packing)
    rows, columns = read.axes
    is_exact = isinstance(element, WordPairElement)
    if is_exact and read.image.block < depth:
        raise RejectionError("the channels of a pixel are not adjacent")
    return WinogradConvolution(
        batches=batches,
        depth=depth,
        channels=channels,
        rows=rows,
        columns=columns,
        image=read.image,
        memories=read.memories,
        result=layer.result,
        epilogue=layer.epilogue,
        lanes=layer.lanes,
        tiling=tiling,
        multiplier=_multiplier(element),
        transforms_filters=transforms_filters,
        is_exact=is_exact,
    )


def _multiplier(element: DotElement | None) -> Multiplier:
    if element is None:
        return FMA
    return EncodedPairs(element) if isinstance(element, WordPairElement) else element.multiplier(has_sign=False)


def _packing(convolution: Convolution, tile: OutputTile, panel: int, element: DotElement | None) -> tuple[Step, ...]:
    """Steps from ``[OC, IC, KH, KW]`` to ``[panel, point, IC / group, channel, group]``, filled up with zeros."""
    channels, depth = convolution.filter.shape[:2]
    panels, points = -(-channels // panel), tile.points(convolution)
    group = 1 if element is None else element.group
    steps = -(-depth // group)
    return (
        WinogradFilter((tile.height, tile.width), rounded=element is not None),
        Reshape((points, depth, channels)),
        *cut(((points,), (steps, group), (panels, panel)), (3, 0, 1, 4, 2)),
        *(() if element is None else (Round(element.dtype),)),
    )


def _plain_packing(convolution: Convolution, panel: int) -> tuple[Step, ...]:
    """Steps from ``[OC, IC, KH, KW]`` to ``[panel, tap, IC, channel]``, filled up with zeros."""
    channels, depth, *taps = convolution.filter.shape
    count = math.prod(taps)
    return (
        Transpose((2, 3, 1, 0)),
        Reshape((count, depth, channels)),
        *cut(((count,), (depth,), (-(-channels // panel), panel)), (2, 0, 1, 3)),
    )


def _integer_packing(convolution: Convolution, tile: OutputTile, panel: int, group: int) -> tuple[Step, ...]:
    """Like ``_packing``, quantised to 8 bits with a scale for each point and channel.

    Raises:
        RejectionError: if encoding tiles takes more than sums and differences, or sums may exceed 32 bits.
    """
    channels, depth, *taps = convolution.filter.shape
    _check_integers(tuple(zip((tile.height, tile.width), taps, strict=True)))
    check_sums(depth)
    panels, points, steps = -(-channels // panel), tile.points(convolution), -(-depth // group)
    packed = cut(((steps, group), (panels, points, panel)), (2, 3, 0, 4, 1))
    return (
        WinogradFilter((tile.height, tile.width)),
        Reshape((points, depth, channels)),
        *cut(((points,), (depth,), (panels, panel)), (1, 2, 0, 3)),
        Reshape((depth, panels * points * panel)),
        Quantise(1, points * panel, packed),
    )


def _exact_packing(convolution: Convolution, tile: OutputTile, panel: int) -> tuple[Step, ...]:
    """Steps from ``[OC, IC, KH, KW]`` to integers ``[panel, point, IC / 2, channel, 2]`` of 16 bits and scales.

    Raises:
        RejectionError: if 16 bits do not hold encoded tiles or filters.
    """
    channels, depth, *taps = convolution.filter.shape
    for size in zip((tile.height, tile.width), taps, strict=True):
        exact_transforms(*size)
    panels, points = -(-channels // panel), tile.points(convolution)
    packed = cut(((points,), (-(-depth // _PAIR), _PAIR), (panels, panel)), (3, 0, 1, 4, 2))
    steps = (Reshape((points, depth, channels)), *packed)
    return (QuantiseEncoded(0, panel, steps, output_tile=(tile.height, tile.width)),)


def _check_integers(sizes: Sequence[tuple[int, int]]) -> None:
    """Make sure that tiles, given as m and r along H and W, are encoded by sums and differences.

    Raises:
        RejectionError: if they are not.
    """
    sides = [tile + size - 1 for tile, size in sizes]
    if max(sides) > MOST_POINTS_OF_INTEGERS:
        raise RejectionError(f"tiles of {sides[0]}x{sides[1]} pixels are encoded by more than sums and differences")


def workspace_type(kernel: WinogradConvolution) -> TensorType:
    """Type of the workspace of all workgroups."""
    x, y, z = kernel.groups
    return TensorType((x * y * z * kernel.workspace,), kernel.multiplier.dtype)


def winograd_tilings(
    convolution: Convolution, tile: OutputTile, machine: Machine, *, is_best: bool, group: int = 1
) -> list[WinogradTiling]:
    """Tilings worth trying for an output tile, best guess first, such that encoded tiles and products stay in the
    cache.

    Args:
        convolution: the layer's convolution.
        tile: pixels of the result in a tile.
        machine: the CPU.
        is_best: whether the output tile is the most promising one; others get fewer tilings, as they compile slowly.
        group: input channels that are multiplied at once, and take as much memory as a float.
    """
    batches, channels, *_ = convolution.result.shape
    depth, lanes = -(-convolution.filter.shape[1] // group), machine.lanes
    tiles, vectors = tile.count(convolution) // batches, -(-channels // lanes)
    shapes = register_shapes(1, tiles, vectors, depth, machine)
    workspace = _RESIDENT_BYTES if machine.in_subgroups else _SMALL_BYTES
    work = _Work(tile, tile.points(convolution), tiles, depth, vectors, lanes, workspace)
    if machine.in_subgroups:
        smaller = (replace(shape, columns=-(-shape.columns // part)) for part in _SHARES for shape in shapes)
        split = dict.fromkeys(work.by_both(tiling, machine.threads) for tiling in smaller)
        enough = (tiling for tiling in split if work.groups(tiling) >= machine.threads // _BUSY_SHARE)
        return list(islice(enough, _TRIED_IN_SUBGROUPS))
    first, *others = shapes
    tilings = work.splits(first, machine.threads)
    larger = replace(work, workspace=_RESIDENT_BYTES).splits(first, machine.threads)[0]
    if is_best:
        tilings += [larger, *(work.splits(other, machine.threads)[0] for other in others[:1])]
    if tiles > _MANY_GROUPS * larger.block:
        tilings.append(work.by_tiles(first, _MANY_GROUPS))
    return list(dict.fromkeys(tilings))


@dataclass(frozen=True)
class _Work:
    """The work of a layer, for an output tile.

    Attributes:
        tile: pixels of the result in a tile.
        points: pixels of the image in a tile.
        tiles: tiles of the result.
        depth: input channels, or groups of them.
        vectors: vectors of output channels.
        lanes: elements of a vector.
        workspace: bytes of encoded tiles and products, at most, unless filters come from memory each time.
    """

    tile: OutputTile
    points: int
    tiles: int
    depth: int
    vectors: int
    lanes: int
    workspace: int

    @property
    def streams(self) -> bool:
        """Whether filters come from memory each time."""
        return self.points * self.depth * self.vectors * self.lanes * _FLOAT_BYTES > _STREAMED_FILTERS

    def splits(self, shape: Shape, threads: int) -> list[WinogradTiling]:
        """Tilings that keep ``threads`` threads busy, best guess first.

        If workgroups partition tiles, each tile is encoded once, but each workgroup reads all filters. If they
        partition panels, each filter is read by one workgroup, but each workgroup encodes all tiles.
        """
        tilings = [self.by_panels(shape, 1)] if threads == 1 else []
        groups = max(threads, _LEAST_GROUPS)
        runs, panels = self._units(shape)
        by_tiles = runs >= groups
        if by_tiles and not (tilings and self.streams):
            tilings.append(self.by_tiles(shape, groups))
        if not by_tiles or self.streams or _idle(panels, groups) < _idle(runs, groups):
            tilings.append(self.by_panels(shape, groups))
        return tilings

    def by_tiles(self, shape: Shape, groups: int) -> WinogradTiling:
        """A tiling whose workgroups partition tiles."""
        runs, panels = self._units(shape)
        return self._tiling(shape, self._block(shape, -(-runs // groups)), groups, panels)

    def by_panels(self, shape: Shape, groups: int) -> WinogradTiling:
        """A tiling whose workgroups partition panels."""
        runs, panels = self._units(shape)
        return self._tiling(shape, self._block(shape, runs), 1, -(-panels // min(groups, panels)))

    def by_both(self, shape: Shape, groups: int) -> WinogradTiling:
        """A tiling whose workgroups partition tiles, and panels too if there are fewer runs of tiles than ``groups``.

        A workgroup is a subgroup of a GPU, which has room for many.
        """
        runs, panels = self._units(shape)
        along = -(-runs // -(-runs // groups))
        across = min(panels, -(-groups // along))
        return self._tiling(shape, self._block(shape, -(-runs // along)), along, -(-panels // across))

    def groups(self, tiling: WinogradTiling) -> int:
        """Workgroups of a tiling."""
        panels = -(-self.vectors // tiling.vectors)
        return tiling.groups * -(-panels // tiling.panels)

    def _units(self, shape: Shape) -> tuple[int, int]:
        """Numbers of register tiles along the tiles of the result, and of panels."""
        return -(-self.tiles // shape.columns), -(-self.vectors // shape.vectors)

    def _tiling(self, shape: Shape, block: int, groups: int, panels: int) -> WinogradTiling:
        height, width = self.tile.height, self.tile.width
        return WinogradTiling(height, width, shape.columns, shape.vectors, block, groups, panels, shape.unroll)

    def _block(self, shape: Shape, runs: int) -> int:
        """Tiles of a block: as many register tiles as fit the cache, such that ``runs`` of them make equal blocks."""
        bytes_of_tile = self.points * (self.depth + (shape.vectors + 1) * self.lanes) * _FLOAT_BYTES
        cache = _STREAMED_BYTES if self.streams else self.workspace
        fitting = max(1, cache // (bytes_of_tile * shape.columns))
        return -(-runs // -(-runs // fitting)) * shape.columns


def _idle(parts: int, threads: int) -> float:
    """Fraction of time in which threads wait for the last one, if they process ``parts`` equal parts."""
    return 1 - parts / (-(-parts // threads) * threads)
