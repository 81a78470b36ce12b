"""Filters in the order in which dot products read them: of each group of input channels all channels of a panel."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.packing import Step, cut, narrowed
from sartor.codegen.kernels.isa.multipliers import MOST_PRODUCTS, DotElement
from sartor.codegen.kernels.vector.contraction import FilterStrides
from sartor.codegen.kernels.vector.integer_sums import IntegerSums

_FLOAT_BYTES = 4
# First layers by small filters mostly write; what rounding their filters costs, the whole network errs by.
_FEWEST_PRODUCTS = 64


@dataclass(frozen=True)
class DotPacking:
    """Packed filters.

    Attributes:
        packing: from how ONNX has them.
        strides: of the packed ones.
        meaning: what sums of their products stand for, if they are integers.
    """

    packing: tuple[Step, ...]
    strides: FilterStrides
    meaning: IntegerSums | None


def pack_dots(filters: TensorType, panel: int, lanes: int, element: DotElement) -> DotPacking:
    """``[OC, IC, KH, KW]`` to ``[panel, KH, KW, IC / group, channel, group]``, filled up with zeros.

    Raises:
        ValueError: if half of a group or more would be zeros, a short sum would hardly gain by it, or there are too
            many products for a sum.
    """
    channels, depth, height, width = filters.shape
    if depth < element.group and depth * height * width < _FEWEST_PRODUCTS:
        raise ValueError(f"a result has {depth * height * width} products, too few to round filters for")
    panels, groups = _checked(depth, height * width, channels, panel, element, element.group // 2 + 1)
    steps = cut(((panels, panel), (groups, element.group), (height,), (width,)), (0, 4, 5, 2, 1, 3))
    packing = narrowed(steps, element.dtype, 0, panel, (2, 3))
    return _packed(packing, groups, (height, width), panel, lanes, element, ((height + 1) * (width + 1), True))


def pack_dot_matrix(matrix: TensorType, panel: int, lanes: int, element: DotElement) -> DotPacking:
    """``[K, N]`` to ``[panel, K / group, channel, group]``, filled up with zeros.

    Raises:
        ValueError: if K is less than a group, or there are too many products for a sum.
    """
    depth, channels = matrix.shape
    panels, groups = _checked(depth, 1, channels, panel, element, element.group)
    packing = narrowed(cut(((groups, element.group), (panels, panel)), (2, 0, 3, 1)), element.dtype, 1, panel)
    return _packed(packing, groups, (1, 1), panel, lanes, element, (1, False))


def _checked(depth: int, taps: int, channels: int, panel: int, element: DotElement, least: int) -> tuple[int, int]:
    """Panels and groups of input channels, of which there have to be so many at least."""
    if depth < least:
        raise ValueError(f"it has {depth} input channels, too few to multiply {element.group} at once")
    if element.is_quantised and depth * taps > MOST_PRODUCTS:
        raise ValueError(f"sums of {depth * taps} products may exceed 32 bits")
    return -(-channels // panel), -(-depth // element.group)


def _packed(
    packing: tuple[Step, ...],
    groups: int,
    taps: tuple[int, int],
    panel: int,
    lanes: int,
    element: DotElement,
    table: tuple[int, bool],
) -> DotPacking:
    height, width = taps
    step = panel * element.group
    numbers = height * width * groups * step
    entries, has_taps = table
    size = numbers + (_FLOAT_BYTES * panel * (1 + entries) if element.is_quantised else 0)
    strides = FilterStrides(
        batch=0,
        panel=size,
        row=width * groups * step,
        column=groups * step,
        depth=step,
        vector=lanes * element.group,
        padded=True,
    )
    meaning = IntegerSums(numbers, size, taps if has_taps else None, element.bias) if element.is_quantised else None
    return DotPacking(packing, strides, meaning)
