"""Filters of 8-bit integers, transformed exactly for Winograd's method."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from sartor.codegen.ir.channel_scales import channel_scales
from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.packing import Quantise
from sartor.codegen.ir.winograd import exact_transforms, transforms

_WORDS_OF_FLOAT = 2
_BITS, _MOST_PIXEL, _MOST_WEIGHT = 32, 255, 128


@dataclass(frozen=True)
class QuantiseEncoded(Quantise):
    """Quantise filters ``[OC, IC, KH, KW]``, and transform the integers without fractions (``exact_transforms``).

    Sums by them are taken modulo 2^32, where an odd factor divides. Of a factor with a power of two the top bits are
    lost, so sums must be smaller, which is a question of each channel's weights.

    ``steps`` pack what is transformed, ``[NH, NW, IC, OC]``, to ``[panels, …]`` of 16 bits. The channels' scales, of
    the integers before the transform, follow each panel in f32.

    Attributes:
        output_tile: m along H and W, pixels of the result in a tile.
    """

    output_tile: tuple[int, int] = (2, 2)

    def apply(self, array: np.ndarray) -> np.ndarray:
        """The packed weight, ``[panels, numbers of 16 bits]``."""
        scales = channel_scales(self._channels(array))[0]
        packed = self._encoded(np.rint(array / scales[:, None, None, None])).astype("<i2")
        for step in self.steps:
            packed = step.apply(packed)
        rows = np.ascontiguousarray(packed.reshape(packed.shape[0], -1))
        return np.concatenate([rows, self._panels(scales[:, None]).view("<i2")], axis=1)

    def _encoded(self, numbers: np.ndarray) -> np.ndarray:
        """Transformed filters ``[NH, NW, IC, OC]``; doubles hold them exactly."""
        channels, depth, *taps = numbers.shape
        rows, columns = (
            np.array(exact_transforms(tile, size)[0].filter, np.float64)
            for tile, size in zip(self.output_tile, taps, strict=True)
        )
        # Of magnitudes that 16 bits hold (``exact_transforms``).
        products = np.kron(rows, columns) @ numbers.reshape(channels * depth, -1).astype(np.float64).T
        return products.reshape(len(rows), len(columns), channels, depth).transpose(0, 1, 3, 2)

    @property
    def bounds_sums(self) -> bool:
        return True

    def fits(self, array: np.ndarray) -> bool:
        """Whether no sum of products of a channel by pixels of 8 bits, minus their zero point, is too large."""
        factor = math.prod(
            exact_transforms(tile, size)[1] for tile, size in zip(self.output_tile, array.shape[2:], strict=True)
        )
        lost = (factor & -factor).bit_length() - 1
        most = ((1 << (_BITS - 1 - lost)) - 1) // _MOST_PIXEL
        if array[:1].size * _MOST_WEIGHT <= most:
            return True
        numbers = self.integers(array, self.scales(array)).astype(np.int64).reshape(len(array), -1)
        sides = (np.maximum(numbers, 0), np.minimum(numbers, 0))
        return all(bool((np.abs(side.sum(axis=1)) <= most).all()) for side in sides)

    def type_of(self, tensor: TensorType) -> TensorType:
        channels, depth, *taps = tensor.shape
        points = (len(transforms(tile, size).filter) for tile, size in zip(self.output_tile, taps, strict=True))
        packed = replace(tensor, shape=(*points, depth, channels), dtype="i16")
        for step in self.steps:
            packed = step.type_of(packed)
        panels = packed.shape[0]
        return TensorType((panels, packed.elements // panels + _WORDS_OF_FLOAT * self.panel), "i16")
