"""How weights are brought into the form a routine reads: a list of numpy steps, run once at compile time."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from sartor.codegen.layer import TensorType
from sartor.codegen.winograd import transform_filter


class Step(Protocol):
    """One step of a packing."""

    def apply(self, array: np.ndarray) -> np.ndarray:
        """The packed array."""


@dataclass(frozen=True)
class Transpose:
    """Reorder dimensions as ``numpy.transpose`` does."""

    order: tuple[int, ...]

    def apply(self, array: np.ndarray) -> np.ndarray:
        return array.transpose(self.order)


@dataclass(frozen=True)
class Reshape:
    """Split or merge dimensions in row-major order."""

    shape: tuple[int, ...]

    def apply(self, array: np.ndarray) -> np.ndarray:
        return array.reshape(self.shape)


@dataclass(frozen=True)
class PadTo:
    """Extend each dimension with zeros at its end to ``shape``."""

    shape: tuple[int, ...]

    def apply(self, array: np.ndarray) -> np.ndarray:
        if array.shape == self.shape:
            return array
        widths = [(0, size - old) for size, old in zip(self.shape, array.shape, strict=True)]
        return np.pad(array, widths)


@dataclass(frozen=True)
class WinogradFilter:
    """``[OC, IC, KH, KW]`` to ``[NH, NW, IC, OC]``, n of both dimensions, for output tiles of so many pixels."""

    output_tile: tuple[int, int]

    def apply(self, array: np.ndarray) -> np.ndarray:
        return transform_filter(array, self.output_tile).astype(array.dtype)


@dataclass(frozen=True)
class Packing:
    """Steps from a weight in ONNX layout to what one argument of a variant expects."""

    steps: tuple[Step, ...] = ()

    def apply(self, array: np.ndarray) -> np.ndarray:
        """The packed weight, contiguous and of the same element type."""
        packed = array
        for step in self.steps:
            packed = step.apply(packed)
        return np.asarray(packed, dtype=array.dtype, order="C")

    def type_of(self, weight: TensorType) -> TensorType:
        """Type of the packed weight."""
        return _type_of(self, weight)

    def __str__(self) -> str:
        return "; ".join(str(step) for step in self.steps)


@functools.lru_cache(maxsize=4096)
def _type_of(packing: Packing, weight: TensorType) -> TensorType:
    probe = np.broadcast_to(np.zeros((), weight.numpy_dtype), weight.shape)
    for step in packing.steps:
        probe = step.apply(probe)
    return replace(weight, shape=tuple(probe.shape))
