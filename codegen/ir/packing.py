"""How weights are rearranged and converted for a routine: a list of numpy steps that run once, at compile time."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from sartor.codegen.ir.channel_scales import channel_scales
from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.winograd import transform_filter, transforms

_FLOAT_BYTES = 4
_MANTISSA = 23  # Bits of f32's.
# Numbers that are looked at before the next ones: few large weights need to be looked at to their end.
_PART = 1 << 16


def rounded_mantissa(array: np.ndarray, bits: int) -> np.ndarray:
    """Numbers of f32 with ``bits`` bits of mantissa, rounded to nearest, ties to even.

    What is not finite, or would not be, stays as it is.
    """
    cut = np.uint32(_MANTISSA - bits)
    given = np.ascontiguousarray(array, np.float32)
    words = given.view(np.uint32)
    is_odd = words >> cut & np.uint32(1)
    rounded = words + (np.uint32(1) << cut - np.uint32(1)) - np.uint32(1) + is_odd
    cut_off = (rounded >> cut << cut).view(np.float32)
    return np.where(np.isfinite(given) & np.isfinite(cut_off), cut_off, given).reshape(array.shape)


class Step(Protocol):
    """One step of a packing."""

    def apply(self, array: np.ndarray) -> np.ndarray:
        """The packed array."""

    def type_of(self, tensor: TensorType) -> TensorType:
        """The type of ``apply``'s result, found without the data: weights are large, and this is asked often."""


@dataclass(frozen=True)
class Transpose:
    """Reorder dimensions as ``numpy.transpose`` does."""

    order: tuple[int, ...]

    def apply(self, array: np.ndarray) -> np.ndarray:
        return array.transpose(self.order)

    def type_of(self, tensor: TensorType) -> TensorType:
        return replace(tensor, shape=tuple(tensor.shape[axis] for axis in self.order))


@dataclass(frozen=True)
class Reshape:
    """Split or merge dimensions in row-major order."""

    shape: tuple[int, ...]

    def apply(self, array: np.ndarray) -> np.ndarray:
        return array.reshape(self.shape)

    def type_of(self, tensor: TensorType) -> TensorType:
        return replace(tensor, shape=np.broadcast_to(np.int8(0), tensor.shape).reshape(self.shape).shape)


@dataclass(frozen=True)
class PadTo:
    """Extend each dimension with zeros at its end to ``shape``."""

    shape: tuple[int, ...]

    def apply(self, array: np.ndarray) -> np.ndarray:
        if array.shape == self.shape:
            return array
        widths = [(0, size - old) for size, old in zip(self.shape, array.shape, strict=True)]
        return np.pad(array, widths)

    def type_of(self, tensor: TensorType) -> TensorType:
        return replace(tensor, shape=self.shape)


@dataclass(frozen=True)
class Round:
    """Round to another floating-point type, to nearest."""

    dtype: str

    def apply(self, array: np.ndarray) -> np.ndarray:
        return array.astype(TensorType((), self.dtype).numpy_dtype)

    def type_of(self, tensor: TensorType) -> TensorType:
        return replace(tensor, dtype=self.dtype)


@dataclass(frozen=True)
class Narrow:
    """Store in a narrower floating-point type what is widened again when it is read."""

    dtype: str

    def apply(self, array: np.ndarray) -> np.ndarray:
        return array.astype(TensorType((), self.dtype).numpy_dtype)

    def type_of(self, tensor: TensorType) -> TensorType:
        return replace(tensor, dtype=self.dtype)

    def is_exact(self, array: np.ndarray) -> bool:
        """Whether the narrower type has all of the numbers."""
        numbers = array.reshape(-1)
        with np.errstate(over="ignore"):
            parts = (numbers[begin : begin + _PART] for begin in range(0, numbers.size, _PART))
            return all(np.array_equal(self.apply(part).astype(part.dtype), part) for part in parts)


@dataclass(frozen=True)
class Scaled:
    """Store as integers of 8 bits, each channel by a scale of its own, which what is computed is multiplied by."""

    dtype: str = "i8"


Storage = Narrow | Round | Scaled
"""How a weight is stored in a narrower type: without loss, or rounded where an error is allowed."""


@dataclass(frozen=True)
class RoundMantissa:
    """Round f32 to fewer bits of mantissa, to nearest, ties to even, in the same type, as for TF32.

    Attributes:
        bits: of the mantissa that are kept, of the 23 that f32 has.
    """

    bits: int

    def apply(self, array: np.ndarray) -> np.ndarray:
        return rounded_mantissa(array, self.bits)

    def type_of(self, tensor: TensorType) -> TensorType:
        return tensor


@dataclass(frozen=True)
class Quantise:
    """Quantise to 8 bits with zero point 0, and pack into panels that also hold scales and sums of the integers.

    Each channel has the scale that ``channel_scales`` finds.

    Attributes:
        axis: axis of the channels.
        panel: channels of a panel.
        steps: packing of the integers, which have the weight's shape, to ``[panels, …]``.
        taps: axes of the kernel's rows and columns, if sums over parts of the window are needed; else empty.
    """

    axis: int
    panel: int
    steps: tuple[Step, ...]
    taps: tuple[int, ...] = ()

    def apply(self, array: np.ndarray) -> np.ndarray:
        """The packed weight, ``[panels, bytes]``: integers, then scales and sums of each channel's integers in f32.

        With ``taps`` the sums are a summed-area table: entry ``(y, x)``, up to the kernel's height and width, is the
        sum over all taps in rows before ``y`` and columns before ``x``.
        """
        others, scales = self._others(array), self.scales(array)
        numbers = self.integers(array, scales)
        within = tuple(axis for axis in others if axis not in self.taps)
        sums = self._before(numbers.sum(axis=within, dtype=np.int64)).astype(np.float32)
        packed = numbers
        for step in self.steps:
            packed = step.apply(packed)
        rows = self._as_bytes(packed.reshape(packed.shape[0], -1))
        return np.concatenate([rows, self._panels(scales.reshape(-1, 1)), self._panels(sums)], axis=1)

    @property
    def bounds_pairs(self) -> bool:
        """Whether pairs of neighbours are kept small, which may round them."""
        return False

    @property
    def bounds_sums(self) -> bool:
        """Whether sums of products must be smaller than their type holds, which depends on the weight's numbers."""
        return False

    def fits(self, array: np.ndarray) -> bool:
        """Whether they are."""
        return True

    def scales(self, array: np.ndarray) -> np.ndarray:
        """The scale of each channel."""
        scales_of_channels, _ = channel_scales(self._channels(array))
        return scales_of_channels

    def integers(self, array: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """The weight's nearest multiples of the channels' scales."""
        nearest: np.ndarray = np.rint(array / np.expand_dims(scales, self._others(array)))
        return nearest.astype(np.int8)

    def _others(self, array: np.ndarray) -> tuple[int, ...]:
        """All axes but that of the channels."""
        return tuple(axis for axis in range(array.ndim) if axis != self.axis)

    def _before(self, sums: np.ndarray) -> np.ndarray:
        """The summed-area table ``[channels, entries]`` of sums of single taps, ``[channels, …]``."""
        for axis in range(1, sums.ndim):
            sums = np.cumsum(np.pad(sums, [(int(index == axis), 0) for index in range(sums.ndim)]), axis=axis)
        return sums.reshape(len(sums), -1)

    def type_of(self, tensor: TensorType) -> TensorType:
        packed = replace(tensor, dtype="i8")
        for step in self.steps:
            packed = step.type_of(packed)
        panels = packed.shape[0]
        numbers = packed.elements // panels * self.bytes
        scale_and_sums = 1 + math.prod(tensor.shape[axis] + 1 for axis in self.taps)
        return TensorType((panels, numbers + scale_and_sums * self.panel * _FLOAT_BYTES), "i8")

    @property
    def bytes(self) -> int:
        """Bytes of an integer."""
        return 1

    def _as_bytes(self, numbers: np.ndarray) -> np.ndarray:
        """Integers ``[panels, numbers]`` as they are stored."""
        return numbers

    def is_exact(self, array: np.ndarray) -> bool:
        """Whether quantising loses nothing, because each channel's weights are 8-bit integers times its scale."""
        return bool(channel_scales(self._channels(array))[1].all())

    def _channels(self, array: np.ndarray) -> np.ndarray:
        """``[channels, elements]``."""
        return np.moveaxis(array, self.axis, 0).reshape(array.shape[self.axis], -1)

    def _panels(self, values: np.ndarray) -> np.ndarray:
        """Numbers ``[channels, numbers]`` as bytes ``[panels, …]``; within a panel the channels vary fastest."""
        filled = np.pad(values, ((0, -len(values) % self.panel), (0, 0)))
        turned = filled.reshape(-1, self.panel, values.shape[1]).transpose(0, 2, 1)
        return np.ascontiguousarray(turned).reshape(len(turned), -1).view(np.int8)


@dataclass(frozen=True)
class QuantiseWide(Quantise):
    """``Quantise`` with each integer of 8 bits stored in 16."""

    @property
    def bytes(self) -> int:
        return 2

    def _as_bytes(self, numbers: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(numbers, "<i2").view(np.int8)


@dataclass(frozen=True)
class WinogradFilter:
    """Winograd's filter transform, ``[OC, IC, KH, KW]`` to ``[NH, NW, IC, OC]``, n points along each dimension.

    Attributes:
        output_tile: m along H and W, pixels of the result in a tile.
        rounded: whether a later step rounds to a narrower type.
    """

    output_tile: tuple[int, int]
    rounded: bool = False

    def apply(self, array: np.ndarray) -> np.ndarray:
        return transform_filter(array, self.output_tile, rounded=self.rounded).astype(array.dtype)

    def type_of(self, tensor: TensorType) -> TensorType:
        channels, depth, *kernel = tensor.shape
        points = (len(transforms(tile, taps).filter) for tile, taps in zip(self.output_tile, kernel, strict=True))
        return replace(tensor, shape=(*points, depth, channels))


def cut(sizes: Sequence[tuple[int, ...]], order: tuple[int, ...]) -> tuple[Step, ...]:
    """Steps that pad each dimension with zeros to the product of its sizes, split it into these, and reorder all
    parts."""
    extents = tuple(math.prod(size) for size in sizes)
    return PadTo(extents), Reshape(tuple(size for pair in sizes for size in pair)), Transpose(order)


def narrowed(
    steps: tuple[Step, ...], dtype: str, axis: int, panel: int, taps: tuple[int, ...] = ()
) -> tuple[Step, ...]:
    """Steps that pack a weight into panels of a narrower type: ``Quantise`` for i8, else ``Round``.

    Args:
        steps: packing from the weight to ``[panels, …]``.
        dtype: the narrower type.
        axis: as for ``Quantise``.
        panel: as for ``Quantise``.
        taps: as for ``Quantise``.
    """
    return (Quantise(axis, panel, steps, taps),) if dtype == "i8" else (*steps, Round(dtype))


def stored_as(steps: tuple[Step, ...], storage: Storage | None, axis: int, panel: int) -> tuple[Step, ...]:
    """Steps that pack a weight into panels and store it so, in its own type if ``storage`` is None.

    Args:
        steps: packing from the weight to ``[panels, …]``.
        storage: of its numbers.
        axis: of the channels.
        panel: channels of a panel.
    """
    if storage is None:
        return steps
    return narrowed(steps, storage.dtype, axis, panel) if isinstance(storage, Scaled) else (*steps, storage)


def panel_bytes_beside(storage: Storage | None, panel: int) -> int:
    """Bytes of a panel of ``panel`` channels that are no numbers: the scales and sums that ``Quantise`` adds."""
    return 2 * panel * _FLOAT_BYTES if isinstance(storage, Scaled) else 0


@dataclass(frozen=True)
class Packing:
    """Steps from a weight in ONNX layout to what one argument of a variant expects."""

    steps: tuple[Step, ...] = ()

    def apply(self, array: np.ndarray) -> np.ndarray:
        """The packed weight, contiguous."""
        packed = array
        for step in self.steps:
            packed = step.apply(packed)
        return np.ascontiguousarray(packed).reshape(packed.shape)

    @property
    def channels(self) -> tuple[tuple[Step, ...], int] | None:
        """The steps before it quantises, and the axis of channels, which decide whether that is without loss; None if
        it does not quantise."""
        for index, step in enumerate(self.steps):
            if isinstance(step, Quantise):
                return self.steps[:index], step.axis
        return None

    @property
    def bounding(self) -> Quantise | None:
        """The step that quantises without loss only where pairs of neighbours are small, too, which its own steps make
        neighbours; the panel of its scales, which decides nothing, is left out. None if there is no such step."""
        bounding = next((step for step in self.steps if isinstance(step, Quantise) and step.bounds_pairs), None)
        return None if bounding is None else replace(bounding, panel=1)

    def is_exact(self, array: np.ndarray) -> bool:
        """Whether the steps quantise this weight without loss; True if they do not quantise."""
        for index, step in enumerate(self.steps):
            if isinstance(step, Quantise):
                return step.is_exact(Packing(self.steps[:index]).apply(array))
        return True

    @property
    def summing(self) -> Quantise | None:
        """The step by whose integers sums may be too large, without its packing, which decides nothing; None if there
        is none."""
        quantise = next((step for step in self.steps if isinstance(step, Quantise) and step.bounds_sums), None)
        return None if quantise is None else replace(quantise, panel=1, steps=())

    def fits(self, array: np.ndarray) -> bool:
        """Whether sums of products by this weight are as small as its steps need them."""
        for index, step in enumerate(self.steps):
            if isinstance(step, Quantise):
                return step.fits(Packing(self.steps[:index]).apply(array))
        return True

    @property
    def narrowing(self) -> Narrow | None:
        """The step that stores the weight's numbers in a narrower type, from which they are widened when they are read;
        others only rearrange them. None if there is none."""
        return next((step for step in self.steps if isinstance(step, Narrow)), None)

    def type_of(self, weight: TensorType) -> TensorType:
        """Type of the packed weight."""
        return _type_of(self, weight)

    def __str__(self) -> str:
        return "; ".join(str(step) for step in self.steps)


@dataclass(frozen=True)
class Beside:
    """Pack in two ways, one behind the other in one dimension, for code that reads either.

    Attributes:
        first, second: the steps of both.
    """

    first: Packing
    second: Packing

    def apply(self, array: np.ndarray) -> np.ndarray:
        return np.concatenate([packing.apply(array).reshape(-1) for packing in (self.first, self.second)])

    def type_of(self, tensor: TensorType) -> TensorType:
        one, other = (packing.type_of(tensor) for packing in (self.first, self.second))
        return TensorType((one.elements + other.elements,), one.dtype)


@functools.lru_cache(maxsize=4096)
def _type_of(packing: Packing, weight: TensorType) -> TensorType:
    packed = weight
    for step in packing.steps:
        packed = step.type_of(packed)
    return packed
