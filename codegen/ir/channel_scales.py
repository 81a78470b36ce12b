"""Scales by which weights become integers of 8 bits, one for each channel."""

from __future__ import annotations

import numpy as np

_LEAST, _MOST = -128, 127
# Elements of a channel that are tested first, because they rule out most scales.
_SAMPLE = 32
# How far an integer multiple may be from an integer, relative to it. Rounding to f32 causes far less; a weight is zero
# only if nothing is lost by that.
_DEVIATION = 2.0**-16
# The first are those of symmetric and of full ranges, which most quantisers give most channels.
_COUNTS = (_MOST, _MOST + 1, *range(1, _MOST))
# Channels whose weights are all smaller are zeros: f32 cannot hold the inverse of their scale, or not its products.
_LEAST_WEIGHT = 1e-22


def channel_scales(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The 8-bit scale of each channel, and whether all its weights are integer multiples of that scale.

    Weights of a quantised model are ``scale * integer``, so the largest magnitude is 1 to 128 times the scale. The
    first of these multiples for which all weights are integers gives the model's own scale. A channel without such a
    multiple gets the symmetric scale ``largest / 127``, one of numbers below 1e-22, which become zeros, the scale 1.

    Args:
        rows: ``[channels, elements]``, floats.

    Returns:
        Scales ``[channels]`` in f32, and booleans ``[channels]``.
    """
    largest = np.abs(rows).max(axis=1, initial=0.0).astype(np.float64)
    is_lost = (largest > 0) & (largest < _LEAST_WEIGHT)
    largest[is_lost | (largest == 0)] = _MOST
    steps = np.zeros(len(rows), np.int64)
    order = np.argsort(-np.abs(rows[:, : 4 * _SAMPLE]), axis=1)[:, :_SAMPLE]
    sample = np.take_along_axis(rows, order, axis=1)
    for count in _COUNTS:
        open_ones = np.flatnonzero(steps == 0)
        if not len(open_ones):
            break
        likely = open_ones[_are_integers(sample[open_ones], largest[open_ones], count)]
        steps[likely[_are_integers(rows[likely], largest[likely], count)]] = count
    steps = _fewest(steps, rows, sample, largest)
    is_exact = (steps > 0) & ~is_lost
    scales = (largest / np.where(is_exact, steps, _MOST)).astype(np.float32)
    scales[is_exact] = _reproducing(rows[is_exact], scales[is_exact])
    return scales, is_exact


def _fewest(steps: np.ndarray, rows: np.ndarray, sample: np.ndarray, largest: np.ndarray) -> np.ndarray:
    """For each channel the least number of steps that its largest weight can be, given one; 0 stays 0.

    All integers of a channel are divided by what divides them all. Mostly a few of them show that nothing does.
    """
    divisors = _common_divisors(sample, largest, steps)
    doubtful = np.flatnonzero((steps > 0) & (divisors != 1))
    divisors[doubtful] = _common_divisors(rows[doubtful], largest[doubtful], steps[doubtful])
    # Of zeros everything is a divisor.
    return np.asarray(np.where((steps > 0) & (divisors == 0), 1, steps // np.maximum(divisors, 1)))


def _common_divisors(rows: np.ndarray, largest: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """The greatest common divisor of each channel's integers, 0 for zeros."""
    integers = np.rint(rows * (steps / largest)[:, None]).astype(np.int64)
    return np.asarray(np.gcd.reduce(integers, axis=1))


def _reproducing(rows: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """For each channel, the scale or one of its two neighbours in f32, whichever reproduces most weights exactly.

    The largest weight was rounded to f32, so the quotient that the scale was computed by may be off by one bit.
    """
    numbers = np.rint(rows / scales[:, None]).astype(np.float32)
    near = [scales, *(np.nextafter(scales, np.float32(end)) for end in (0, np.inf))]
    wrong = [np.count_nonzero(numbers * row_of_scales[:, None] != rows, axis=1) for row_of_scales in near]
    array: np.ndarray = np.take_along_axis(np.stack(near), np.argmin(wrong, axis=0)[None], axis=0)[0]
    return array


def _are_integers(rows: np.ndarray, largest: np.ndarray, count: int) -> np.ndarray:
    """For each channel, whether all elements are 8-bit integers if ``largest`` is ``count`` steps."""
    numbers = rows * (count / largest)[:, None]
    nearest = np.rint(numbers)
    inside = (nearest >= _LEAST) & (nearest <= _MOST)
    return np.asarray((inside & (np.abs(numbers - nearest) <= _DEVIATION * np.abs(nearest))).all(axis=1))
