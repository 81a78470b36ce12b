"""A 3x3 convolution layer in Winograd's form."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.convolution import Convolution
from sartor.codegen.kernels.convolution import ImageLayer, convolution_operands
from sartor.codegen.kernels.tilings import Shape, register_shapes
from sartor.codegen.kernels.winograd import Winograd, WinogradTiling
from sartor.codegen.layer import TensorType
from sartor.codegen.machine import Machine
from sartor.codegen.packing import PadTo, Reshape, Transpose, WinogradFilter
from sartor.codegen.winograd import KERNEL

_RESIDENT_BYTES = 1 << 20
# The code may run with more threads than it was tuned for.
_LEAST_GROUPS = 2
_MANY_GROUPS = 8
_FLOAT_BYTES = 4


def winograd_form(layer: ImageLayer, convolution: Convolution, tiling: WinogradTiling) -> Winograd:
    """The layer's kernel; its filters are transformed and packed into panels.

    Raises:
        ValueError: if the layer has no such form.
    """
    batches, channels, *_ = convolution.result.shape
    depth, panel = convolution.filter.shape[1], tiling.vectors * layer.lanes
    panels, count = -(-channels // panel), tiling.size**2
    packing = (
        WinogradFilter(tiling.tile),
        Reshape((count, depth, channels)),
        PadTo((count, depth, panels * panel)),
        Reshape((count, depth, panels, panel)),
        Transpose((2, 0, 1, 3)),
    )
    read = convolution_operands(layer, convolution, packing)
    rows, columns = read.axes
    return Winograd(
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
    )


def workspace_type(form: Winograd) -> TensorType:
    """Memory for all workgroups."""
    x, y, z = form.groups
    return TensorType((x * y * z * form.workspace,), "f32")


def winograd_tilings(convolution: Convolution, tile: int, machine: Machine, *, is_best: bool) -> list[WinogradTiling]:
    """Tilings worth trying for an output tile, best guess first: encoded tiles and products stay in the cache.

    Args:
        convolution: the layer's.
        tile: output pixels per side of a tile.
        machine: what it runs on.
        is_best: whether the output tile is the most promising one, of which more is tried: these kernels are long.
    """
    _, channels, height, width = convolution.result.shape
    depth, lanes = convolution.filter.shape[1], machine.lanes
    tiles, vectors = -(-height // tile) * -(-width // tile), -(-channels // lanes)
    first, *others = register_shapes(1, tiles, vectors, depth, machine)
    groups = max(machine.threads, _LEAST_GROUPS)
    work = _Work(tile, tiles, depth, vectors, lanes)
    found = work.splits(first, groups)
    if others and is_best:
        found.append(work.splits(others[0], groups)[0])
    if tiles > _MANY_GROUPS * found[0].block:
        found.append(work.by_tiles(first, _MANY_GROUPS))
    return found


@dataclass(frozen=True)
class _Work:
    """What is shared out.

    Attributes:
        tile: output pixels per side of a tile.
        tiles: of the result.
        depth: input channels.
        vectors: of output channels.
        lanes: elements of a vector.
    """

    tile: int
    tiles: int
    depth: int
    vectors: int
    lanes: int

    def splits(self, shape: Shape, threads: int) -> list[WinogradTiling]:
        """Ways to keep as many threads busy, best guess first.

        Tiles are encoded once if they are shared out, but by every workgroup if panels are.
        """
        runs, panels = -(-self.tiles // shape.columns), -(-self.vectors // shape.vectors)
        found = [self.by_tiles(shape, threads)] if runs >= threads else []
        if not found or (_idle(panels, threads) < _idle(runs, threads)):
            found.append(self.by_panels(shape, threads))
        return found

    def by_tiles(self, shape: Shape, groups: int) -> WinogradTiling:
        """Tiles shared out among workgroups."""
        runs, panels = -(-self.tiles // shape.columns), -(-self.vectors // shape.vectors)
        block = self._block(shape, -(-runs // groups))
        return WinogradTiling(self.tile, shape.columns, shape.vectors, block, groups, panels, shape.unroll)

    def by_panels(self, shape: Shape, groups: int) -> WinogradTiling:
        """Panels shared out among workgroups."""
        runs, panels = -(-self.tiles // shape.columns), -(-self.vectors // shape.vectors)
        block, share = self._block(shape, runs), -(-panels // min(groups, panels))
        return WinogradTiling(self.tile, shape.columns, shape.vectors, block, 1, share, shape.unroll)

    def _block(self, shape: Shape, runs: int) -> int:
        """Tiles of the blocks of so many register tiles: as large as the cache holds, and all alike."""
        bytes_of_tile = (self.tile + KERNEL - 1) ** 2 * (self.depth + (shape.vectors + 1) * self.lanes) * _FLOAT_BYTES
        fitting = max(1, _RESIDENT_BYTES // (bytes_of_tile * shape.columns))
        return -(-runs // -(-runs // fitting)) * shape.columns


def _idle(parts: int, threads: int) -> float:
    """Share of the time that threads wait for the last if each takes as many equal parts as another, or one less."""
    return 1 - parts / (-(-parts // threads) * threads)
