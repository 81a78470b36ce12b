"""A 3x3 convolution layer in Winograd's form."""

from __future__ import annotations

from sartor.codegen.convolution import Convolution
from sartor.codegen.kernels.convolution import ImageLayer, convolution_operands
from sartor.codegen.kernels.tilings import Shape, register_shapes
from sartor.codegen.kernels.winograd import Winograd, WinogradTiling
from sartor.codegen.layer import TensorType
from sartor.codegen.machine import Machine
from sartor.codegen.packing import PadTo, Reshape, Transpose, WinogradFilter
from sartor.codegen.winograd import KERNEL

_RESIDENT_BYTES = 1 << 20
_GROUPS = 2
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
    found = [_tiling(first, tile, (tiles, depth, vectors), lanes, _GROUPS)]
    if others and is_best:
        found.append(_tiling(others[0], tile, (tiles, depth, vectors), lanes, _GROUPS))
    if tiles > _MANY_GROUPS * found[0].block:
        found.append(_tiling(first, tile, (tiles, depth, vectors), lanes, _MANY_GROUPS))
    return found


def _tiling(shape: Shape, tile: int, work: tuple[int, int, int], lanes: int, most_groups: int) -> WinogradTiling:
    """Blocks as large as the cache holds, and no more groups than there are blocks: each has a workspace of its own.

    Args:
        shape: register tile.
        tile: output pixels per side.
        work: tiles, input channels and vectors of output channels.
        lanes: elements of a vector.
        most_groups: workgroups that are wanted.
    """
    tiles, depth, vectors = work
    columns, wide = shape.columns, shape.vectors
    bytes_of_tile = (tile + KERNEL - 1) ** 2 * (depth + lanes + wide * lanes) * _FLOAT_BYTES
    runs, fitting = -(-tiles // columns), max(1, _RESIDENT_BYTES // (bytes_of_tile * columns))
    # As many blocks as can be shared out evenly, and no larger than they must be.
    blocks = -(-runs // fitting)
    blocks += blocks % most_groups if 1 < blocks < runs else 0
    block = -(-runs // blocks) * columns
    panels = -(-vectors // wide)
    groups = min(most_groups, -(-tiles // block))
    split = panels if groups > 1 else -(-panels // min(most_groups, panels))
    return WinogradTiling(tile, columns, wide, block, groups, split, shape.unroll)
