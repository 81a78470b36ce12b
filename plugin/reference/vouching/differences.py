"""How far the outputs of a rewrite are from right ones, and how far the rounding of its own nodes lets them be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sartor.reference.layerwise.bounded import Bounded, half_roundoff
from sartor.runtime.driver.signature import Array
from sartor.runtime.output_error import LAYER, output_error, output_scale

# What is right is rounded too, and functions of definitions have errors of some roundings.
_LEAST = 2.0**-18


@dataclass(frozen=True)
class Difference:
    """How far an output is off, and how far it may be, both as relative errors."""

    error: float = 0.0
    allowed: float = 0.0

    @property
    def is_wrong(self) -> bool:
        """Whether rounding does not explain it."""
        return self.error > self.allowed


def real_difference(output: Array, right: Array, bounded: Bounded | None, usual: float) -> Difference:
    """The difference of an output of floats, or of integers that must be equal.

    Args:
        output: of the rewrite.
        right: what its node defines.
        bounded: the output with what rounding in the nodes of the rewrite may change; None if that is not known.
        usual: the largest relative error that is allowed, however far rounding may move the output. What lies octaves
            below all else has a scale of its own, and may be the rest of a sum that cancels: there it is relative to
            the least scale of the others.
    """
    scale = output_scale(right, np.zeros(right.shape), lenience=LAYER)
    error = output_error(output, right, scale=scale)
    if error in (0.0, math.inf) or bounded is None or bounded.value.shape != right.shape:
        return Difference(error, usual)
    moved = 0.0 if bounded.error is None else bounded.error.astype(np.float64)
    # What is not finite may have any scale, and has no difference here.
    least = LAYER.least * np.max(scale[np.isfinite(right.astype(np.float64))], initial=0.0)
    most = usual * np.maximum(1.0, least / scale)
    allowed = np.minimum(most, moved / scale + max(_LEAST, 2 * half_roundoff(right)))
    with np.errstate(invalid="ignore"):
        relative = np.nan_to_num(np.abs(output.astype(np.float64) - right.astype(np.float64)) / scale)
    excess = float(np.max(relative / allowed))
    return Difference(error, error / excess)


def quantised_difference(output: Array, right: Array, bounded: Bounded) -> Difference:
    """The difference of an output of 8-bit integers, none if all are on either side of a tie; else infinite."""
    moved = 0.0 if bounded.error is None else bounded.error
    if {output.shape, bounded.value.shape} != {right.shape}:
        return Difference(math.inf)
    is_near = all(
        np.all(np.abs(values.astype(np.float64) - bounded.value.astype(np.float64)) <= moved)
        for values in (output, right)
    )
    return Difference(0.0 if is_near else math.inf)


def is_quantised(right: Array) -> bool:
    """Whether an output is of integers that a tie may move by one step."""
    return right.dtype.kind in "iu" and right.dtype.itemsize == 1


def steps_error(pairs: Sequence[tuple[Array, Array]], share: float) -> float:
    """The error of quantised outputs beside right ones: none if at most a share of them all is off, by one step; else
    infinite."""
    if any(output.shape != right.shape for output, right in pairs):
        return math.inf
    distances = [np.abs(output.astype(np.int64) - right.astype(np.int64)) for output, right in pairs]
    size, moved = sum(distance.size for distance in distances), sum(map(np.count_nonzero, distances))
    is_near = max((distance.max(initial=0) for distance in distances), default=0) <= 1 and moved <= share * size
    return 0.0 if is_near else math.inf
