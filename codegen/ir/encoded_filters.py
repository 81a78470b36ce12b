"""Filters of 8-bit integers, transformed exactly for Winograd's method."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sartor.codegen.ir.channel_scales import channel_scales
from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.packing import Quantise
from sartor.codegen.ir.winograd import integer_transform, transforms

_WORDS_OF_FLOAT = 2


@dataclass(frozen=True)
class QuantiseEncoded(Quantise):
    """Quantise filters ``[OC, IC, KH, KW]``, and transform the integers: ``G g G^T`` times the least factor that leaves
    no fractions.

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
            np.array(integer_transform(tile, size)[0], np.float64)
            for tile, size in zip(self.output_tile, taps, strict=True)
        )
        products = np.kron(rows, columns) @ numbers.reshape(channels * depth, -1).astype(np.float64).T
        return products.reshape(len(rows), len(columns), channels, depth).transpose(0, 1, 3, 2)

    def type_of(self, tensor: TensorType) -> TensorType:
        channels, depth, *taps = tensor.shape
        points = (len(transforms(tile, size).filter) for tile, size in zip(self.output_tile, taps, strict=True))
        packed = replace(tensor, shape=(*points, depth, channels), dtype="i16")
        for step in self.steps:
            packed = step.type_of(packed)
        panels = packed.shape[0]
        return TensorType((panels, packed.elements // panels + _WORDS_OF_FLOAT * self.panel), "i16")
