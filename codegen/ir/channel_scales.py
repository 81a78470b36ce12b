"""Scales by which weights become integers of 8 bits, one for each channel."""

from __future__ import annotations

import numpy as np

_LEAST, _MOST = -128, 127
# Elements of a channel by which most scales are ruled out.
_SAMPLE = 32
# What single precision loses of a product of a scale and a number of 8 bits is far less, in steps of the scale.
_DEVIATION = 2.0**-10


def channel_scales(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The scale of each channel, and whether its weights are integers of 8 bits by that scale.

    Weights of a quantised model are ``scale * number``. The largest of them is one of 128 multiples of the scale, which
    one is seen by the others: so the numbers are found again that the model was made of. Other weights get the finest
    scale by which there are as many steps below zero as above.

    Args:
        rows: ``[channels, elements]``, floats.
    """
    largest = np.abs(rows).max(axis=1, initial=0.0).astype(np.float64)
    largest[largest == 0] = _MOST
    steps = np.zeros(len(rows), np.int64)
    order = np.argsort(-np.abs(rows[:, : 4 * _SAMPLE]), axis=1)[:, :_SAMPLE]
    sample = np.take_along_axis(rows, order, axis=1)
    for count in range(1, _MOST + 2):
        open_ones = np.flatnonzero(steps == 0)
        likely = open_ones[_are_integers(sample[open_ones], largest[open_ones], count)]
        steps[likely[_are_integers(rows[likely], largest[likely], count)]] = count
    is_exact = steps > 0
    scales = (largest / np.where(is_exact, steps, _MOST)).astype(np.float32)
    scales[is_exact] = _reproducing(rows[is_exact], scales[is_exact])
    return scales, is_exact


def _reproducing(rows: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Of the scale of each channel and its neighbours in single precision the one whose products with integers are
    the weights: the largest weight was rounded, and so its quotient may be next to the scale that it was made by."""
    numbers = np.rint(rows / scales[:, None]).astype(np.float32)
    near = [scales, *(np.nextafter(scales, np.float32(end)) for end in (0, np.inf))]
    wrong = [np.count_nonzero(numbers * each[:, None] != rows, axis=1) for each in near]
    found: np.ndarray = np.take_along_axis(np.stack(near), np.argmin(wrong, axis=0)[None], axis=0)[0]
    return found


def _are_integers(rows: np.ndarray, largest: np.ndarray, count: int) -> np.ndarray:
    """For each channel, whether all elements are integers of 8 bits if the largest is ``count`` steps."""
    numbers = rows * (count / largest)[:, None]
    nearest = np.rint(numbers)
    inside = (nearest >= _LEAST) & (nearest <= _MOST)
    return np.asarray((inside & (np.abs(numbers - nearest) <= _DEVIATION)).all(axis=1))
