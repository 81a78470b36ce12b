"""Weights in 8 bits of which no two neighbours are more than 128 together, so that pairs of products fit 16 bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sartor.codegen.ir.packing import Quantise

MOST_OF_A_PAIR = 128
"""Times 255, the largest number without a sign, it is 32,640."""
_GROUP = 2


@dataclass(frozen=True)
class QuantisePairs(Quantise):
    """``Quantise`` to integers whose pairs, as they are packed, keep to the bound.

    A channel with a larger pair gets twice its scale, and so integers of 7 bits, of which every pair is small enough.
    That rounds its weights, which ``is_exact`` tells.
    """

    @property
    def bounds_pairs(self) -> bool:
        return True

    def scales(self, array: np.ndarray) -> np.ndarray:
        scales = super().scales(array)
        return np.where(self._largest_pairs(array, scales) > MOST_OF_A_PAIR, 2 * scales, scales)

    def is_exact(self, array: np.ndarray) -> bool:
        """Whether quantising loses nothing: weights are 8-bit integers times their scale, and no pair is too large."""
        largest = self._largest_pairs(array, super().scales(array))
        return super().is_exact(array) and bool((largest <= MOST_OF_A_PAIR).all())

    def _largest_pairs(self, array: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """For each channel the largest sum of the magnitudes of two neighbours."""
        packed = np.abs(self.integers(array, scales).astype(np.int16))
        for step in self.steps:
            packed = step.apply(packed)
        *_, channels, group = packed.shape
        pairs = packed.reshape(len(packed), -1, channels, group // _GROUP, _GROUP).sum(axis=-1)
        largest_pairs: np.ndarray = pairs.max(axis=(1, 3)).reshape(-1)[: array.shape[self.axis]]
        return largest_pairs
