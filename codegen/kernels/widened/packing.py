"""Pack filters in the order in which pairs are read, in 8 or in 16 bits, and convert sums by them to real numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sartor.codegen.ir.layer import F32, TensorType
from sartor.codegen.ir.packing import Quantise, QuantiseWide, Reshape, Step, Transpose, cut
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.isa.multipliers import check_sums
from sartor.codegen.kernels.isa.word_pairs import WordPairElement
from sartor.codegen.kernels.loops.nest import Nest, Tile
from sartor.codegen.kernels.vector.contraction import FilterStrides
from sartor.codegen.kernels.vector.integer_sums import IntegerSums
from sartor.codegen.mlir.iree_compiler import ir

_FLOAT_BYTES = 4
_WORD = 32


@dataclass(frozen=True)
class CentredSums(IntegerSums):
    """Sums of an image's numbers minus their zero point, which need no correction."""

    def starts(self, asm: Assembler, nest: Nest, memories: tuple[ir.Value, ir.Value], tile: Tile) -> list[ir.Value]:
        """Zeros."""
        nothing = asm.splat(ir.IntegerAttr.get(ir.IntegerType.get_signless(_WORD), 0))
        return [nothing] * len(tile.tile_vectors(nest.lanes))


@dataclass(frozen=True)
class PairPacking:
    """How filters are packed.

    Attributes:
        packing: the step from ONNX's layout.
        strides: strides of the packed filters, in bytes.
        meaning: converts sums to real numbers.
    """

    packing: tuple[Quantise]
    strides: FilterStrides
    meaning: CentredSums


def pack_pairs(
    filters: TensorType, panel: int, lanes: int, element: WordPairElement, *, adjoins: bool = False
) -> PairPacking:
    """Pack ``[OC, IC, KH, KW]`` to ``[panel, KH, KW, IC / 2, channel, 2]``, filled up with zeros.

    Args:
        filters: the filters.
        panel: channels of a panel.
        lanes: elements of a vector.
        element: the instruction.
        adjoins: whether the taps of a kernel row are one sequence, ``[panel, KH, 1, KW * IC / 2, channel, 2]``.

    Raises:
        RejectionError: if sums may exceed 32 bits.
    """
    channels, depth, height, width = filters.shape
    if adjoins:
        adjoined = TensorType((channels, width * depth, height, 1), filters.dtype)
        packing = pack_pairs(adjoined, panel, lanes, element)
        (quantise,) = packing.packing
        steps: tuple[Step, ...] = (Transpose((0, 3, 1, 2)), Reshape(adjoined.shape), *quantise.steps)
        return replace(packing, packing=(replace(quantise, steps=steps),))
    panels, pairs = _counts(depth, height * width, channels, panel, element)
    steps = cut(((panels, panel), (pairs, element.group), (height,), (width,)), (0, 4, 5, 2, 1, 3))
    return _packed(steps, 0, (height, width, pairs), panel, lanes, element)


def pack_pair_windows(
    channels: int, kernel: tuple[int, int], panel: int, lanes: int, element: WordPairElement
) -> PairPacking:
    """Pack ``[C, KH, KW]`` to ``[panel, KH, KW / 2, channel, 2]``, filled up with zeros.

    Raises:
        RejectionError: if sums may exceed 32 bits, or there is one tap in a row.
    """
    height, width = kernel
    taps = TensorType((channels, width, height, 1), F32)
    packed = pack_pairs(taps, panel, lanes, element)
    (quantise,) = packed.packing
    steps: tuple[Step, ...] = (Transpose((0, 2, 1)), Reshape(taps.shape), *quantise.steps)
    return replace(packed, packing=(replace(quantise, steps=steps),))


def pack_pair_matrix(matrix: TensorType, panel: int, lanes: int, element: WordPairElement) -> PairPacking:
    """Pack ``[K, N]`` to ``[panel, K / 2, channel, 2]``, filled up with zeros.

    Raises:
        RejectionError: if sums may exceed 32 bits.
    """
    depth, channels = matrix.shape
    panels, pairs = _counts(depth, 1, channels, panel, element)
    steps = cut(((pairs, element.group), (panels, panel)), (2, 0, 3, 1))
    return _packed(steps, 1, (1, 1, pairs), panel, lanes, element)


def _counts(depth: int, taps: int, channels: int, panel: int, element: WordPairElement) -> tuple[int, int]:
    """Numbers of panels and of pairs of input channels.

    Raises:
        RejectionError: if sums may exceed 32 bits, or if half of each pair would be zero.
    """
    if depth == 1:
        raise RejectionError("it has 1 input channel, too few to multiply 2 at once")
    check_sums(depth * taps)
    return -(-channels // panel), -(-depth // element.group)


def _packed(
    steps: tuple[Step, ...],
    axis: int,
    sizes: Sequence[int],
    panel: int,
    lanes: int,
    element: WordPairElement,
) -> PairPacking:
    height, width, pairs = sizes
    step = panel * element.group * element.filter_bytes
    numbers = height * width * pairs * step
    # A scale and a sum for each channel follow the numbers.
    size = numbers + 2 * _FLOAT_BYTES * panel
    strides = FilterStrides(
        batch=0,
        panel=size,
        row=width * pairs * step,
        column=pairs * step,
        depth=step,
        vector=lanes * element.group * element.filter_bytes,
        padded=True,
    )
    quantise = (QuantiseWide if element.is_wide else Quantise)(axis, panel, steps)
    return PairPacking((quantise,), strides, CentredSums(numbers, size, None, 0))
