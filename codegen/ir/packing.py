"""How weights are brought to what a routine reads: a list of numpy steps, run once at compile time."""

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


class Step(Protocol):
    """One step of a packing."""

    def apply(self, array: np.ndarray) -> np.ndarray:
        """The packed array."""

    def type_of(self, tensor: TensorType) -> TensorType:
        """What type ``apply`` gives; asked hundreds of times about weights of hundreds of MB."""


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
    """To another floating-point type, to the nearest number."""

    dtype: str

    def apply(self, array: np.ndarray) -> np.ndarray:
        return array.astype(TensorType((), self.dtype).numpy_dtype)

    def type_of(self, tensor: TensorType) -> TensorType:
        return replace(tensor, dtype=self.dtype)


@dataclass(frozen=True)
class Quantise:
    """To 8 bits with zero as zero point, each channel by ``channel_scales``, packed into panels with what that means.

    Attributes:
        axis: of the channels.
        panel: channels of a panel.
        steps: from integers like the weight to ``[panels, …]``.
        taps: the two last axes of the weight, if parts of a window are to have sums of their own.
    """

    axis: int
    panel: int
    steps: tuple[Step, ...]
    taps: tuple[int, ...] = ()

    def apply(self, array: np.ndarray) -> np.ndarray:
        """``[panels, bytes]``: numbers, then as f32 scales and sums of the numbers of each channel, which are sums over
        all rows and columns of taps before each, and before the end, where taps have sums of their own."""
        others = tuple(axis for axis in range(array.ndim) if axis != self.axis)
        scales = np.expand_dims(channel_scales(self._channels(array))[0], others)
        numbers = np.rint(array / scales).astype(np.int8)
        within = tuple(axis for axis in others if axis not in self.taps)
        sums = self._before(numbers.sum(axis=within, dtype=np.int64)).astype(np.float32)
        packed = numbers
        for step in self.steps:
            packed = step.apply(packed)
        rows = packed.reshape(packed.shape[0], -1)
        return np.concatenate([rows, self._panels(scales.reshape(-1, 1)), self._panels(sums)], axis=1)

    def _before(self, sums: np.ndarray) -> np.ndarray:
        """Sums of taps ``[channels, …]`` as sums over all taps before each and before the end, by row and column."""
        for axis in range(1, sums.ndim):
            sums = np.cumsum(np.pad(sums, [(int(each == axis), 0) for each in range(sums.ndim)]), axis=axis)
        return sums.reshape(len(sums), -1)

    def type_of(self, tensor: TensorType) -> TensorType:
        packed = replace(tensor, dtype="i8")
        for step in self.steps:
            packed = step.type_of(packed)
        panels = packed.shape[0]
        scale_and_sums = 1 + math.prod(tensor.shape[axis] + 1 for axis in self.taps)
        return TensorType((panels, packed.elements // panels + scale_and_sums * self.panel * _FLOAT_BYTES), "i8")

    def is_exact(self, array: np.ndarray) -> bool:
        """Whether the weight is integers of 8 bits by a scale of each channel."""
        return bool(channel_scales(self._channels(array))[1].all())

    def _channels(self, array: np.ndarray) -> np.ndarray:
        """``[channels, elements]``."""
        return np.moveaxis(array, self.axis, 0).reshape(array.shape[self.axis], -1)

    def _panels(self, values: np.ndarray) -> np.ndarray:
        """Numbers ``[channels, numbers]`` as bytes: in panels, each number of all its channels."""
        filled = np.pad(values, ((0, -len(values) % self.panel), (0, 0)))
        turned = filled.reshape(-1, self.panel, values.shape[1]).transpose(0, 2, 1)
        return np.ascontiguousarray(turned).reshape(len(turned), -1).view(np.int8)


@dataclass(frozen=True)
class WinogradFilter:
    """``[OC, IC, KH, KW]`` to ``[NH, NW, IC, OC]``, n of both dimensions, for output tiles of so many pixels.

    Attributes:
        output_tile: pixels along H and W.
        rounded: whether a narrower type follows.
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
    """Steps that cut each dimension into some of these sizes, filled up with zeros at its end, and reorder them all."""
    extents = tuple(math.prod(each) for each in sizes)
    return PadTo(extents), Reshape(tuple(size for each in sizes for size in each)), Transpose(order)


def narrowed(
    steps: tuple[Step, ...], dtype: str, axis: int, panel: int, taps: tuple[int, ...] = ()
) -> tuple[Step, ...]:
    """Steps to panels in a narrower type: integers with what they mean, or rounded to a floating-point type.

    Args:
        steps: from the weight to ``[panels, …]``.
        dtype: the type.
        axis: as for ``Quantise``, like all that follows.
        panel: channels of a panel.
        taps: axes of taps.
    """
    return (Quantise(axis, panel, steps, taps),) if dtype == "i8" else (*steps, Round(dtype))


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

    def is_exact(self, array: np.ndarray) -> bool:
        """Whether quantising, if it is among the steps, changes nothing."""
        for index, step in enumerate(self.steps):
            if isinstance(step, Quantise):
                return step.is_exact(Packing(self.steps[:index]).apply(array))
        return True

    def type_of(self, weight: TensorType) -> TensorType:
        """Type of the packed weight."""
        return _type_of(self, weight)

    def __str__(self) -> str:
        return "; ".join(str(step) for step in self.steps)


@functools.lru_cache(maxsize=4096)
def _type_of(packing: Packing, weight: TensorType) -> TensorType:
    packed = weight
    for step in packing.steps:
        packed = step.type_of(packed)
    return packed
