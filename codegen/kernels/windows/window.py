"""A depthwise convolution or pooling layer as a window over images in memory."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from sartor.codegen.analysis.convolution import Window
from sartor.codegen.analysis.register_tiles import balanced
from sartor.codegen.ir.packing import Step, cut
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.isa.word_pairs import WordPairElement, WordPairs
from sartor.codegen.kernels.layers.convolution_operands import unpadded, window_axes
from sartor.codegen.kernels.layers.image_layer import ImageLayer
from sartor.codegen.kernels.loops.access import Access, image_strides, vector_stride
from sartor.codegen.kernels.loops.epilogue import check_region, emit_region
from sartor.codegen.kernels.loops.nest import Nest
from sartor.codegen.kernels.loops.partition import long_workgroups, many_workgroups_of_two
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.widened.packing import pack_pair_windows
from sartor.codegen.kernels.windows.paired_rows import PairedRows, paired_columns
from sartor.codegen.kernels.windows.sliding import Combine, Sliding, TapStrides
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.machine import Machine
from sartor.codegen.mlir.operations import body_of, defining_op

_WIDTHS = (1, 2, 4)
_PAIRED_WIDTHS = (4, 2, 1)
# Registers for the words of a pixel and for a product before it is added.
_BESIDE = 2
_MOST_COLUMNS = 14
_LOWEST = float(np.finfo(np.float32).min)


def window_sliding(layer: ImageLayer, window: Window, tiling: Tiling) -> Sliding:
    """The window of a layer; sets the packing of its filters.

    Raises:
        RejectionError: if the layer cannot be computed so.
    """
    nest, image = _over_image(layer, window, tiling)
    taps, filters = _filters(layer, window) if window.is_weighted else (None, 0)
    combine = multiply_add if window.is_weighted else reduction_of(layer.rewrite.root)
    return Sliding(nest=nest, image=image, taps=taps, filters=filters, combine=combine)


def _over_image(layer: ImageLayer, window: Window, tiling: Tiling) -> tuple[Nest, Access]:
    """The loops over a window's image, and the access to it.

    Raises:
        RejectionError: if it is a weight, or its padding is another than the kernel leaves out.
    """
    rewrite, root = layer.rewrite, layer.rewrite.root
    image, padding = unpadded(root.operands[0], *(neutral_fillings(root) if not window.is_weighted else (0.0,)))
    source = layer.argument(image)
    if source >= len(rewrite.task.inputs):
        raise RejectionError("the image is a weight")
    kind = rewrite.task.inputs[source]
    strides = image_strides(kind, layer.inputs[source])
    batches, channels, *_ = window.result.shape
    axes = window_axes(kind, window.result, window.kernel, window.strides, window.dilations, padding)
    nest = Nest(batches, *axes, layer.result, layer.epilogue, layer.lanes, channels, tiling)
    return nest, Access(source, strides.batch, strides.row, strides.column, vector_stride(strides, layer.lanes))


def paired_rows(layer: ImageLayer, window: Window, tiling: Tiling, element: WordPairElement) -> PairedRows:
    """The depthwise convolution of a layer by pairs of 16-bit numbers; sets the packing of its filters.

    Raises:
        RejectionError: if the layer cannot be computed so.
    """
    nest, image = _over_image(layer, window, tiling)
    panel, pixels = tiling.vectors * layer.lanes, nest.columns
    packed = pack_pair_windows(window.result.shape[1], window.kernel, panel, layer.lanes, element)
    code = PairedRows(
        nest=replace(nest, columns=paired_columns(pixels), loads_early=True),
        pixels=pixels,
        image=image,
        filters=_pack(layer, packed.packing),
        strides=packed.strides,
        multiplier=WordPairs(element),
        meaning=packed.meaning,
    )
    code.check()
    return code


def neutral_fillings(root: ir.Operation) -> tuple[float, ...]:
    """Values of padding that do not change a pooling's result, so that padding can be left out: its initial value.

    For a maximum, torch-mlir starts from minus infinity but may pad with the lowest finite number.
    """
    initial = defining_op(root.operands[2])
    constant = None if initial is None or initial.name != "linalg.generic" else defining_op(initial.operands[0])
    if constant is None or constant.name != "arith.constant":
        return (0.0,)
    start = float(ir.FloatAttr(constant.attributes["value"]).value)
    return (start, _LOWEST) if start == -math.inf else (start,)


def _filters(layer: ImageLayer, window: Window) -> tuple[TapStrides, int]:
    """Pack filters from ``[C, KH, KW]`` to ``[C / lanes, KH, KW, lanes]``; returns their strides and position."""
    lanes, (height, width), channels = layer.lanes, window.kernel, window.result.shape[1]
    vectors = -(-channels // lanes)
    position = _pack(layer, cut(((vectors, lanes), (height,), (width,)), (0, 2, 3, 1)))
    return TapStrides(width * lanes, lanes, height * width * lanes), position


def _pack(layer: ImageLayer, steps: tuple[Step, ...]) -> int:
    """Set the packing of the filters; returns their position among the buffers."""
    rewrite = layer.rewrite
    index = rewrite.weight_index(rewrite.root.operands[1])
    if index is None:
        raise RejectionError("the filters are computed or read elsewhere too")
    rewrite.set_packing(index, steps)
    return len(rewrite.task.inputs) + index


def multiply_add(asm: Assembler, pixel: ir.Value, tap: ir.Value | None, total: ir.Value) -> ir.Value:
    return asm.multiply_add(pixel, tap, total)


def reduction_of(root: ir.Operation) -> Combine:
    """Emits the root's region, in which the argument for the window has no use.

    Raises:
        RejectionError: if it cannot be emitted on vectors, or reads the window.
    """
    check_region(root)
    window = body_of(root).arguments[1]
    if list(window.uses):
        raise RejectionError("a pooling reads its window")

    def combine(asm: Assembler, pixel: ir.Value, _: ir.Value | None, total: ir.Value) -> ir.Value:
        return emit_region(asm, root, [pixel, pixel, total])

    return combine


def window_tilings(window: Window, machine: Machine) -> list[Tiling]:
    """Tilings worth trying, best guess first.

    On a CPU each is tried with all rows of a panel in turn too: its filters, and in blocks its image, stay in the
    first-level cache then, which saves more than a third of small images' time.
    """
    vectors = -(-window.result.shape[1] // machine.lanes)
    return _tilings(window, _register_shapes(window, vectors, machine), machine)


def paired_tilings(window: Window, machine: Machine) -> list[Tiling]:
    """Tilings of ``paired_rows`` worth trying, best guess first: wide ones, whose results are narrowed and stored
    together. Workgroups of a few rows, which would convert those around them too, come last.

    Filters of one vector at a time are in registers.
    """
    vectors, taps = -(-window.result.shape[1] // machine.lanes), -(-window.kernel[1] // 2)
    free = machine.registers - taps - _BESIDE
    shapes = [(wide, min(free // wide, _MOST_COLUMNS)) for wide in _PAIRED_WIDTHS if wide <= vectors]
    fitting = [(wide, columns) for wide, columns in shapes if columns > 0]
    return sorted(_tilings(window, fitting, machine), key=lambda tiling: tiling.row_groups)


def _tilings(window: Window, registers: list[tuple[int, int]], machine: Machine) -> list[Tiling]:
    """Tilings of register tiles of some vectors and columns."""
    _, channels, height, width = window.result.shape
    vectors = -(-channels // machine.lanes)
    shapes = [(balanced(width, columns), wide) for wide, columns in registers]
    tilings = [
        Tiling(1, *shape, *many_workgroups_of_two(height, -(-vectors // shape[1]), machine.threads), 1)
        for shape in shapes
    ]
    if machine.in_subgroups:
        return tilings
    by_panels = [Tiling(1, *shape, 1, long_workgroups(-(-vectors // shape[1]), machine.threads), 1) for shape in shapes]
    return list(dict.fromkeys([*tilings, *by_panels]))


def _register_shapes(window: Window, vectors: int, machine: Machine) -> list[tuple[int, int]]:
    """Vectors and columns of register tiles that leave registers for the filters of a kernel row. If none does, filters
    are loaded from the cache each time."""
    taps = window.kernel[1] if window.is_weighted else 0
    shapes = [(wide, machine.accumulators // wide - taps) for wide in _WIDTHS if wide <= vectors]
    fitting = [(wide, min(columns, _MOST_COLUMNS)) for wide, columns in shapes if columns > 0]
    return fitting or [(1, min(machine.accumulators, _MOST_COLUMNS))]
