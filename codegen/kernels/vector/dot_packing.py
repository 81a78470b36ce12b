"""Pack filters in the order in which dot products read them: for each group of input channels all channels of a
panel."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.packing import Step, cut, narrowed
from sartor.codegen.ir.proven_pairs import QuantisePairs
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.isa.multipliers import DotElement, check_sums
from sartor.codegen.kernels.vector.contraction import FilterStrides
from sartor.codegen.kernels.vector.integer_sums import IntegerSums

_FLOAT_BYTES = 4


@dataclass(frozen=True)
class DotPacking:
    """How filters are packed for dot products.

    Attributes:
        packing: steps from ONNX's layout.
        strides: strides of the packed filters.
        meaning: converts sums of integers to real numbers; None for sums of f32.
    """

    packing: tuple[Step, ...]
    strides: FilterStrides
    meaning: IntegerSums | None


def pack_dots(filters: TensorType, panel: int, lanes: int, element: DotElement) -> DotPacking:
    """Pack ``[OC, IC, KH, KW]`` to ``[panel, KH, KW, IC / group, channel, group]``, filled up with zeros.

    Raises:
        RejectionError: if half of a group or more would be zeros, or if sums may exceed 32 bits.
    """
    channels, depth, height, width = filters.shape
    panels, groups = _checked(depth, height * width, channels, panel, element, element.group // 2 + 1)
    steps = cut(((panels, panel), (groups, element.group), (height,), (width,)), (0, 4, 5, 2, 1, 3))
    packing = _narrowed(steps, element, 0, panel, (2, 3))
    return _packed(packing, groups, (height, width), panel, lanes, element, ((height + 1) * (width + 1), True))


def pack_dot_matrix(matrix: TensorType, panel: int, lanes: int, element: DotElement) -> DotPacking:
    """Pack ``[K, N]`` to ``[panel, K / group, channel, group]``, filled up with zeros.

    Raises:
        RejectionError: if K is less than a group, or sums may exceed 32 bits.
    """
    depth, channels = matrix.shape
    panels, groups = _checked(depth, 1, channels, panel, element, element.group)
    packing = _narrowed(cut(((groups, element.group), (panels, panel)), (2, 0, 3, 1)), element, 1, panel)
    return _packed(packing, groups, (1, 1), panel, lanes, element, (1, False))


def _narrowed(
    steps: tuple[Step, ...], element: DotElement, axis: int, panel: int, taps: tuple[int, ...] = ()
) -> tuple[Step, ...]:
    """Steps that store filters as the instruction multiplies them."""
    if element.needs_small_pairs:
        return (QuantisePairs(axis, panel, steps, taps),)
    return narrowed(steps, element.dtype, axis, panel, taps)


def _checked(depth: int, taps: int, channels: int, panel: int, element: DotElement, least: int) -> tuple[int, int]:
    """Numbers of panels and of groups of input channels.

    Raises:
        RejectionError: if ``depth`` is below ``least``, or sums are too long.
    """
    if depth < least:
        raise RejectionError(f"it has {depth} input channels, too few to multiply {element.group} at once")
    check_sums(depth * taps, is_quantised=element.is_quantised)
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
