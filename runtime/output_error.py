"""How far outputs are from the right ones, whatever part of them is small beside the rest.

A difference is divided by the scale of where it stands: the largest magnitude of the slice that the element lies in,
the least over all axes, and apart for populations of values that lie octaves apart, such as masked and other logits.
What rounding alone does to the right output, its noise, says how small a scale can mean anything. docs/accuracy.md
derives the rules.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sartor.runtime.driver.signature import Array

FloatArray = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
BoolArray = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]

_EXACT_KINDS = "biuOSU"
# A coincidence of probability 2^-20 is none.
_RARE_BITS = 20.0
# Populations of values are at least so many octaves apart.
_GAP_OCTAVES = 5
# Nothing computes the same large number again and again; masks are -1e4 or larger.
_LEAST_MASK = 512.0
# Of the smallest magnitude of float64, moved to count from 0.
_EXPONENTS = 1100


@dataclass(frozen=True)
class Lenience:
    """How many times the noise of a value its scale is at least.

    Attributes:
        whole: for outputs as a whole.
        part: for slices and populations, unless the output as a whole is noisier than that.
        least: share of the scale of a population that the scales of its slices are at least.
    """

    whole: float
    part: float
    least: float = 0.0


FULL = Lenience(4e3, 1e5)
"""For modules that compute in f32: Winograd's method may be off by 100 times the noise, 1e-3 is allowed."""

NARROW = Lenience(4e3, 2.0**22)
"""For modules that round to bf16, f16 or 8 bits: the noise of a slice is seen as that of four roundings at least."""

HALF = Lenience(128.0, 2.0**9)
"""For models in f16 and bf16, whose own noise is 2^13 times as large."""

QUANTISED = Lenience(0.0, 2.0**6)
"""For quantised models, whose noise is that of single steps."""


LAYER = Lenience(0.0, 0.0, 2.0**-6)
"""For layers alone, whose noise is not known: a channel that ReLU lets through in one place is what is left of more."""


@dataclass(frozen=True)
class Noise:
    """What rounding moves outputs by.

    Attributes:
        outputs: for each output and element the largest change seen.
        draws: in how many runs.
        lenience: what follows from it.
    """

    outputs: Sequence[Array]
    draws: int
    lenience: Lenience = FULL


def scales_of(reference: Sequence[Array], noise: Noise | None = None) -> list[FloatArray]:
    """What differences of the outputs are divided by, element by element; 1 for what must be equal."""
    if noise is None:
        return [output_scale(each) for each in reference]
    found = zip(reference, noise.outputs, strict=True)
    return [output_scale(each, moved, noise.draws, noise.lenience) for each, moved in found]


def output_scale(reference: Array, noise: Array | None = None, draws: int = 1, lenience: Lenience = FULL) -> FloatArray:
    """The scale of each element of one output; values that are not finite have none, and get 1.

    Args:
        reference: the right output.
        noise: its noise, of the same shape; None if it is not known.
        draws: as in ``Noise``.
        lenience: as in ``Noise``.
    """
    scales = np.ones(reference.shape)
    if reference.dtype.kind in _EXACT_KINDS or not reference.size:
        return scales
    magnitudes = _magnitudes(reference)
    moved = np.zeros(reference.shape) if noise is None else np.nan_to_num(noise.astype(np.float64), posinf=0.0)
    finite = np.isfinite(reference.astype(np.float64))
    ratio: float | None = None
    for members in _populations(magnitudes):
        inside = members & finite
        part = _Population(np.where(inside, magnitudes, 0.0), np.where(inside, moved, 0.0), inside, draws, ratio)
        whole = part.whole(lenience)
        if ratio is None and not part.is_mask:
            ratio = min(lenience.part, whole / part.noise if part.noise else math.inf)
        scales = np.where(inside, part.scales(whole, ratio or 0.0, lenience.least), scales)
    return scales


def relative_error(outputs: Sequence[Array], reference: Sequence[Array], *, scales: Sequence[Array] = ()) -> float:
    """The largest ``output_error``; another number of outputs is an infinite error. ``scales`` as by ``scales_of``."""
    if len(outputs) != len(reference):
        return math.inf
    known: Sequence[Array | None] = scales or [None] * len(outputs)
    return max(
        (
            output_error(output, right, scale=scale)
            for output, right, scale in zip(outputs, reference, known, strict=True)
        ),
        default=0.0,
    )


def output_error(output: Array, reference: Array, *, scale: Array | None = None) -> float:
    """The largest difference of an output, each divided by the scale of where it stands.

    Where the reference is zero throughout, the difference itself. NaN or an infinity in the same places
    counts as equal; anywhere else, as another shape, it is an infinite error. Integers, booleans and strings
    are right (0) if none differs, otherwise infinitely wrong.

    Args:
        output: of the module.
        reference: what is right.
        scale: as by ``output_scale``; None is that without noise.
    """
    if output.shape != reference.shape:
        return math.inf
    if reference.dtype.kind in _EXACT_KINDS:
        return 0.0 if np.array_equal(output, reference) else math.inf
    return float(np.max(scaled_differences(output, reference, scale), initial=0.0))


def largest_error(output: Array, reference: Array) -> float:
    """As ``output_error``, but all differences are divided by the largest magnitude, as on one grid of 8-bit steps."""
    if output.shape != reference.shape:
        return math.inf
    largest = float(np.max(_magnitudes(reference), initial=0.0)) or 1.0
    return output_error(output, reference, scale=np.array(largest))


def scaled_differences(output: Array, reference: Array, scale: Array | None = None) -> FloatArray:
    """Differences by element, divided by scales; infinite where only one value is finite, or another infinity."""
    right = reference.astype(np.float64)
    own = output.astype(np.float64)
    finite, equal = np.isfinite(right), (own == right) | (np.isnan(own) & np.isnan(right))
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = np.abs(own - right) / (output_scale(reference) if scale is None else scale)
    return np.where(equal, 0.0, np.where(finite & np.isfinite(own), scaled, math.inf))


def _magnitudes(reference: Array) -> FloatArray:
    """Absolute values, 0 for what is not finite."""
    right = np.abs(reference.astype(np.float64))
    return np.where(np.isfinite(right), right, 0.0)


def _populations(magnitudes: FloatArray) -> Iterator[BoolArray]:
    """Masks of values that are octaves apart from all others, the largest first; zeros are with these.

    Of values whose density is bounded near zero, j lie g octaves below all others with probability 2^(-g j).
    """
    exponents = np.where(magnitudes > 0, np.frexp(magnitudes)[1], _EXPONENTS)
    counts = np.bincount((exponents[magnitudes > 0] + _EXPONENTS).reshape(-1))
    occupied = np.flatnonzero(counts)
    gaps = np.diff(occupied) - 1
    apart = (gaps >= _GAP_OCTAVES) & (gaps * np.cumsum(counts[occupied])[:-1] >= _RARE_BITS)
    upper = 2 * _EXPONENTS
    for lower in [*reversed(occupied[1:][apart] - _EXPONENTS), -_EXPONENTS]:
        yield (lower <= exponents) & (exponents < upper)
        upper = lower


@dataclass(frozen=True)
class _Population:
    """Values of one order of magnitude, zero in all other places.

    Attributes:
        magnitudes: absolute values.
        moved: their noise.
        members: where they are.
        draws: in how many runs the noise was seen.
        ratio: of scale and noise in a larger population.
    """

    magnitudes: FloatArray
    moved: FloatArray
    members: BoolArray
    draws: int
    ratio: float | None

    @property
    def noise(self) -> float:
        """The largest."""
        return float(self.moved.max())

    @property
    def is_mask(self) -> bool:
        """Whether all values are one large number, so that their scale is not that of anything computed."""
        values = self.magnitudes[self.magnitudes > 0]
        return values.size > 0 and bool(values[0] >= _LEAST_MASK and (values == values[0]).all()) and not self.noise

    def whole(self, lenience: Lenience) -> float:
        """The scale of all together; 1 for zeros, so that differences count as they are."""
        largest, noise = float(self.magnitudes.max()), self.noise
        if not largest:
            return 1.0
        doubt = float(_doubt(np.array(np.count_nonzero(self.members)), 1, self.draws))
        return max(largest, lenience.whole * noise, (self.ratio or 0.0) * noise * doubt)

    def scales(self, whole: float, ratio: float, share: float) -> FloatArray:
        """The least of the scales of all slices that an element lies in.

        Args:
            whole: the scale of all together.
            ratio: how many times its noise the scale of a slice is at least.
            share: of ``whole`` that it is at least.
        """
        found = np.full(self.magnitudes.shape, whole)
        for kept in _kept_axes(self.magnitudes.shape):
            np.minimum(found, self._slices(kept, whole, ratio), out=found)
        np.maximum(found, share * whole, out=found)
        return found

    def _slices(self, kept: tuple[int, ...], whole: float, ratio: float) -> FloatArray:
        """The scales of slices, one for each index along the kept axes, in a shape that broadcasts.

        Of a slice whose noise is not known it must be sure that it is not small by chance: of values whose density is
        bounded near zero, all of s are below a share p of the rest with probability p^s.
        """
        reduced = tuple(axis for axis in range(self.magnitudes.ndim) if axis not in kept)
        largest = self.magnitudes.max(axis=reduced, keepdims=True)
        noise = self.moved.max(axis=reduced, keepdims=True)
        count = np.count_nonzero(self.members, axis=reduced, keepdims=True)
        with np.errstate(divide="ignore"):
            octaves = np.log2(whole) - np.log2(largest)
        unlikely = count * np.where(largest > 0, octaves, 0.0) >= _RARE_BITS + np.log2(largest.size)
        least = ratio * noise * _doubt(count, largest.size, self.draws)
        separate = (largest > 0) & ((noise > 0) | unlikely)
        return np.where(separate, np.maximum(largest, least), whole)


def _doubt(count: Array, slices: int, draws: int) -> FloatArray:
    """How many times as large the noise of ``count`` values may be as it was in so many draws, seen on all slices."""
    found: FloatArray = 2.0 ** ((_RARE_BITS + math.log2(slices)) / (draws * np.maximum(count, 1)))
    return found


def _kept_axes(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Axes along which slices are looked at: each by itself, and each for every entry of a batch."""
    axes = [axis for axis, size in enumerate(shape) if size > 1]
    batched = [(0, axis) for axis in axes if axis] if 0 in axes else []
    return [*((axis,) for axis in axes), *batched]
