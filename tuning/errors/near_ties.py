"""Ignore differences at rounding ties: sums in another order may fall on the other side of a tie."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sartor.runtime.driver.signature import Array

# Another order of summation moves only numbers within a ten thousandth of a step of a tie.
_MOST_MOVED = 1 / 64
_WITHIN = 1.001


def without_near_ties(
    outputs: Sequence[Array], reference: Sequence[Array], step: float, *, is_narrow: bool
) -> Sequence[Array]:
    """A layer's results, with numbers one step off replaced by the reference, if only few are off.

    Args:
        outputs: of a variant.
        reference: of candidate 0.
        step: change of a result when a number next to a tie falls to the other side; 0 without rounding.
        is_narrow: whether the variant's operands are rounded to a narrower type, which may change any result.
    """
    most = 1.0 if is_narrow else _MOST_MOVED
    if not step or [output.shape for output in outputs] != [right.shape for right in reference]:
        return outputs
    return [_moved_back(*pair, step, most) for pair in zip(outputs, reference, strict=True)]


def _moved_back(output: Array, right: Array, step: float, most: float) -> Array:
    """An output with elements within ``step`` of ``right`` replaced by it, if at most the share ``most`` is."""
    if output.dtype.kind != "f":
        return output
    distance = np.abs(output - right)
    is_near = (distance > 0) & (distance <= _WITHIN * step)
    if np.count_nonzero(is_near) > max(1, most * right.size):
        return output
    return np.where(is_near, right, output)
