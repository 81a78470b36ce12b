"""The relative error of outputs, which also sees errors in parts of an output that are small compared to the rest.

A difference is divided by the scale of its element: the largest magnitude of a slice that contains the element, the
smallest over all axes. Populations of values that lie octaves apart, such as masked and other logits, have separate
scales. The noise of an output, the changes that rounding alone causes, bounds the scale from below.
docs/records/accuracy.md derives the rules.
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
# Events of a smaller probability than 2^-20 are not taken as coincidences.
_RARE_BITS = 20.0
# Least distance of two populations of values in octaves.
_GAP_OCTAVES = 5
# Values that are all equal and at least this large are a mask: computed values differ, and masks are 1e4 or larger.
_LEAST_MASK = 512.0
# Subnormal numbers of f16 have fewer bits than bf16, down to one, and models in either may have the same error: a step
# counts as much as a step of bf16 at most.
_LEAST_HALF = 2.0**7 * float(np.finfo(np.float16).smallest_subnormal)
# Those of f32 count as 0 while a module runs, which moves a value of this scale by less than 1e-3. An output of which
# nothing is much larger is lost by that.
_LEAST_SINGLE = 2.0**10 * float(np.finfo(np.float32).smallest_normal)
_MUCH = 2.0**10
# Exponent of the smallest magnitude of float64, so that octaves are counted from 0.
_EXPONENTS = 1100


@dataclass(frozen=True)
class Lenience:
    """The least ratios of scale and noise.

    Attributes:
        whole: for outputs as a whole.
        part: for slices and populations, unless the output as a whole is noisier than that.
        least: least ratio of a slice's scale and that of its population.
    """

    whole: float
    part: float
    least: float = 0.0


FULL = Lenience(4e3, 1e5)
"""For modules that compute in f32: Winograd's method may have errors of 100 times the noise, and 1e-3 is allowed."""

NARROW = Lenience(4e3, 2.0**22)
"""For modules that round to bf16, f16 or 8 bits: the noise of a slice counts as that of at least four roundings."""

HALF = Lenience(128.0, 2.0**9)
"""For models in f16 and bf16, whose own noise is 2^13 times as large."""

QUANTISED = Lenience(0.0, 2.0**6)
"""For quantised models, whose noise is that of single steps."""


LAYER = Lenience(0.0, 0.0, 2.0**-6)
"""For single layers, whose noise is not known: a channel of which ReLU leaves one value had a larger scale."""


@dataclass(frozen=True)
class Noise:
    """The changes of outputs by rounding.

    Attributes:
        outputs: for each output and element the largest observed change.
        draws: number of runs in which changes were observed.
        lenience: how the noise bounds scales.
    """

    outputs: Sequence[Array]
    draws: int
    lenience: Lenience = FULL


def scales_of(reference: Sequence[Array], noise: Noise | None = None) -> list[FloatArray]:
    """For each output the scales by which differences of its elements are divided; 1 for types that must be equal."""
    if noise is None:
        return [output_scale(array) for array in reference]
    scaled = zip(reference, noise.outputs, strict=True)
    return [output_scale(array, moved, noise.draws, noise.lenience) for array, moved in scaled]


def output_scale(reference: Array, noise: Array | None = None, draws: int = 1, lenience: Lenience = FULL) -> FloatArray:
    """The scale of each element of one output; 1 for values that are not finite.

    Args:
        reference: the right output.
        noise: its noise, of the same shape; None if it is not known.
        draws: number of runs in which the noise was observed.
        lenience: how the noise bounds scales.
    """
    scales = np.ones(reference.shape)
    if reference.dtype.kind in _EXACT_KINDS or not reference.size:
        return scales
    magnitudes = _magnitudes(reference)
    moved = np.zeros(reference.shape) if noise is None else np.nan_to_num(noise.astype(np.float64), posinf=0.0)
    finite = np.isfinite(reference.astype(np.float64))
    ratio: float | None = None
    for members in _with_computed_zeros(list(_populations(magnitudes)), magnitudes, moved):
        inside = members & finite
        part = _Population(np.where(inside, magnitudes, 0.0), np.where(inside, moved, 0.0), inside, draws, ratio)
        whole = part.whole(lenience)
        if ratio is None and not part.is_mask:
            ratio = min(lenience.part, whole / part.noise if part.noise else math.inf)
        least = max(lenience.least, _least_scale(reference, magnitudes) / whole)
        scales = np.where(inside, part.scales(whole, ratio or 0.0, least), scales)
    return scales


def largest_computed(reference: Array) -> float:
    """The largest finite magnitude of an output that is no mask; 0 if there is none, or if equal is asked for."""
    if reference.dtype.kind in _EXACT_KINDS or not reference.size:
        return 0.0
    magnitudes = _magnitudes(reference)
    for members in _populations(magnitudes):
        part = _Population(np.where(members, magnitudes, 0.0), np.zeros(reference.shape), members, 1, None)
        if not part.is_mask:
            return float(part.magnitudes.max(initial=0.0))
    return 0.0


def _with_computed_zeros(
    populations: list[BoolArray], magnitudes: FloatArray, moved: FloatArray
) -> Sequence[BoolArray]:
    """The populations, of which a mask has no zeros: these were computed as the values below it were."""
    if len(populations) > 1:
        mask, below = populations[0] & (magnitudes > 0), populations[1] | (magnitudes == 0)
        if _Population(np.where(mask, magnitudes, 0.0), np.where(mask, moved, 0.0), mask, 1, None).is_mask:
            return [mask, below, *populations[2:]]
    return populations


def _least_scale(reference: Array, magnitudes: FloatArray) -> float:
    """The scale of what the smallest numbers of an output's type can hold; 0 if that is nowhere of importance."""
    if reference.dtype == np.float16:
        return _LEAST_HALF
    is_large = reference.dtype == np.float32 and float(magnitudes.max()) > _MUCH * _LEAST_SINGLE
    return _LEAST_SINGLE if is_large else 0.0


def relative_error(outputs: Sequence[Array], reference: Sequence[Array], *, scales: Sequence[Array] = ()) -> float:
    """The largest ``output_error``; infinite if the number of outputs differs. ``scales`` are from ``scales_of``."""
    if len(outputs) != len(reference):
        return math.inf
    return max(output_errors(outputs, reference, scales=scales), default=0.0)


def output_errors(outputs: Sequence[Array], reference: Sequence[Array], *, scales: Sequence[Array] = ()) -> list[float]:
    """The ``output_error`` of each output, of as many as the reference has. ``scales`` are from ``scales_of``."""
    known: Sequence[Array | None] = scales or [None] * len(outputs)
    return [
        output_error(output, right, scale=scale) for output, right, scale in zip(outputs, reference, known, strict=True)
    ]


def output_error(output: Array, reference: Array, *, scale: Array | None = None) -> float:
    """The largest difference of an output, with each difference divided by its element's scale.

    If the reference is zero everywhere, differences are not divided. NaN or an infinity at the same element counts as
    equal, at other elements the error is infinite, as it is for another shape. Integers, booleans and strings have
    the error 0 if all are equal, otherwise infinity.

    Args:
        output: of the module.
        reference: the right output.
        scale: from ``output_scale``; None computes it without noise.
    """
    if output.shape != reference.shape:
        return math.inf
    if reference.dtype.kind in _EXACT_KINDS:
        return 0.0 if np.array_equal(output, reference) else math.inf
    return float(np.max(scaled_differences(output, reference, scale), initial=0.0))


def count_not_finite(array: Array) -> int:
    """How many elements are NaN or infinite."""
    if array.dtype.kind in _EXACT_KINDS:
        return 0
    return int(array.size - np.count_nonzero(np.isfinite(array)))


def largest_error(output: Array, reference: Array) -> float:
    """As ``output_error``, but all differences are divided by the largest magnitude, for grids of 8-bit steps."""
    if output.shape != reference.shape:
        return math.inf
    largest = float(np.max(_magnitudes(reference), initial=0.0)) or 1.0
    return output_error(output, reference, scale=np.array(largest))


def scaled_differences(output: Array, reference: Array, scale: Array | None = None) -> FloatArray:
    """Differences by element, divided by scales; infinite if only one value is finite, or the infinities differ."""
    right = reference.astype(np.float64)
    own = output.astype(np.float64)
    finite, equal = np.isfinite(right), (own == right) | (np.isnan(own) & np.isnan(right))
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = np.abs(own - right) / (output_scale(reference) if scale is None else scale)
    return np.where(equal, 0.0, np.where(finite & np.isfinite(own), scaled, math.inf))


def _magnitudes(reference: Array) -> FloatArray:
    """Absolute values; 0 for values that are not finite."""
    right = np.abs(reference.astype(np.float64))
    return np.where(np.isfinite(right), right, 0.0)


def _populations(magnitudes: FloatArray) -> Iterator[BoolArray]:
    """Masks of populations, values that lie octaves apart from all others. The largest is first and has the zeros.

    If the density of values is bounded near zero, j values lie g octaves below all others with probability 2^(-g j).
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
    """Values of one order of magnitude; other elements are zero.

    Attributes:
        magnitudes: absolute values.
        moved: their noise.
        members: mask of the population's elements.
        draws: number of runs in which the noise was observed.
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
        """Whether all values are one large number, the constant of a mask, which is not a scale of computed values."""
        values = self.magnitudes[self.magnitudes > 0]
        return values.size > 0 and bool(values[0] >= _LEAST_MASK and (values == values[0]).all()) and not self.noise

    def whole(self, lenience: Lenience) -> float:
        """The scale of the whole population; 1 for zeros, so that their differences are not divided."""
        largest, noise = float(self.magnitudes.max()), self.noise
        if not largest:
            return 1.0
        doubt = float(_doubt(np.array(np.count_nonzero(self.members)), 1, self.draws))
        return max(largest, lenience.whole * noise, (self.ratio or 0.0) * noise * doubt)

    def scales(self, whole: float, ratio: float, share: float) -> FloatArray:
        """For each element the least of the scales of all slices that contain it.

        Args:
            whole: the scale of the whole population.
            ratio: least ratio of a slice's scale and its noise.
            share: least ratio of a slice's scale and ``whole``.
        """
        array = np.full(self.magnitudes.shape, whole)
        for kept in _kept_axes(self.magnitudes.shape):
            np.minimum(array, self._slices(kept, whole, ratio), out=array)
        np.maximum(array, share * whole, out=array)
        return array

    def _slices(self, kept: tuple[int, ...], whole: float, ratio: float) -> FloatArray:
        """The scales of slices, one for each index along the kept axes, in a shape that broadcasts.

        A slice whose noise is not known may be small by chance: if the density of values is bounded near zero, all s
        values of a slice are below a fraction p of the rest with probability p^s.
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
    """The factor by which the noise of ``count`` values may exceed that observed in ``draws``, for all slices."""
    array: FloatArray = 2.0 ** ((_RARE_BITS + math.log2(slices)) / (draws * np.maximum(count, 1)))
    return array


def _kept_axes(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The axes of slices: each axis alone, and each together with the batch."""
    axes = [axis for axis, size in enumerate(shape) if size > 1]
    batched = [(0, axis) for axis in axes if axis] if 0 in axes else []
    return [*((axis,) for axis in axes), *batched]
