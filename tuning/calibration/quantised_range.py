"""The 8-bit quantisation of a tensor: scale and zero point from the range of its values.

Jacob et al. 2018, Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference,
section 2.1 (affine quantisation; zero is exact) and Krishnamoorthi 2018, Quantizing deep convolutional networks
for efficient inference, sections 2.1 and 2.2 (asymmetric and symmetric quantisers).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sartor.runtime.driver.signature import Array

_LIMITS: Mapping[str, tuple[int, int]] = {"int8": (-128, 127), "uint8": (0, 255)}
# The middle of a type, which is the zero point of a symmetric quantiser.
_MIDDLES: Mapping[str, int] = {"int8": 0, "uint8": 128}
_SYMMETRIC_STEPS = 127
_LEAST_SCALE, _LARGEST_SCALE = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class QuantisedRange:
    """How 8 bits represent real numbers: ``real = scale * (stored - zero_point)``.

    Attributes:
        scale: step between neighbours; positive, and exact in float32.
        zero_point: the stored number that represents zero.
        dtype: ``int8`` or ``uint8``.
        is_integer: whether the real numbers are integers that the model computes in 8 bits, so that nothing is
            rounded.
    """

    scale: float
    zero_point: int
    dtype: str
    is_integer: bool = False

    @staticmethod
    def of(low: float, high: float, dtype: str = "int8", *, symmetric: bool = False) -> QuantisedRange:
        """The finest form in which the numbers from ``low`` to ``high``, and zero, can be represented.

        Args:
            low, high: finite, in order.
            dtype: ``int8`` or ``uint8``.
            symmetric: with the middle of ``dtype`` as zero point, and as far below it as above.
        """
        low, high = min(low, 0.0), max(high, 0.0)
        least, most = _LIMITS[dtype]
        if symmetric:
            return QuantisedRange(_scale(max(-low, high), _SYMMETRIC_STEPS), _MIDDLES[dtype], dtype)
        scale = _scale(high - low, most - least)
        return QuantisedRange(scale, min(max(round(least - low / scale), least), most), dtype)

    def covering(self, other: QuantisedRange | None) -> QuantisedRange:
        """The range with the numbers of another, too; the same if it has them already, or there is no other."""
        if other is None:
            return self
        (low, high), (least, most) = self.limits, other.limits
        if low <= least and most <= high:
            return self
        return QuantisedRange.of(min(low, least), max(high, most), self.dtype)

    @property
    def limits(self) -> tuple[float, float]:
        """The smallest and the largest real number that can be represented."""
        least, most = self.steps
        return least * self.scale, most * self.scale

    @property
    def steps(self) -> tuple[int, int]:
        """``limits`` divided by the scale."""
        least, most = _LIMITS[self.dtype]
        return least - self.zero_point, most - self.zero_point

    @property
    def numbers(self) -> Array:
        """The range as compiled code reads it: scale, zero point, reciprocal of the scale and a zero, in f32."""
        return np.array([self.scale, self.zero_point, 1 / self.scale, 0], np.float32)

    def quantise(self, array: Array) -> Array:
        """The stored numbers for real numbers, clipped to the range; ties round to even."""
        least, most = _LIMITS[self.dtype]
        return np.asarray(np.clip(np.rint(array / self.scale) + self.zero_point, least, most), self.dtype)

    def dequantise(self, array: Array) -> Array:
        """The real numbers that stored numbers represent, in float64."""
        return np.asarray((array.astype(np.float64) - self.zero_point) * self.scale)

    def round(self, array: Array) -> Array:
        """Real numbers rounded to those that the range represents, in float64."""
        return self.dequantise(self.quantise(array))


def _scale(extent: float, steps: int) -> float:
    """``extent / steps`` rounded to float32, the type of scales in kernels; 1 if the extent is 0."""
    if extent == 0.0:
        return 1.0
    return float(np.float32(min(max(extent / steps, _LEAST_SCALE), _LARGEST_SCALE)))
