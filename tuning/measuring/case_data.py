"""Arguments on which the variants of one case are measured.

Runs rotate over copies of the weights, so that weights are read from memory or an outer cache, as in a network.
Activations are not copied: in a network the previous layer has just written them.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import ml_dtypes
import numpy as np

from sartor.codegen.ir.block_packing import block_of
from sartor.codegen.ir.layer import PLAIN, TensorType
from sartor.codegen.ir.packing import Packing
from sartor.codegen.ir.variants.routine import Implementation
from sartor.runtime.driver.device_array import DeviceArray, upload
from sartor.runtime.driver.native_device import NativeDevice
from sartor.runtime.driver.signature import Array
from sartor.runtime.mapping.heap import take_huge_pages
from sartor.runtime.mapping.pages import HUGE
from sartor.tuning.calibration.quantised_range import QuantisedRange
from sartor.tuning.measuring.benchmark_case import BenchmarkCase, CaseCall
from sartor.tuning.records.hardware import last_level_cache

# Where the system does not tell of a larger cache; and the most that each variant may have.
_COLD_BYTES, _MOST_BYTES = 24 << 20, 128 << 20
# Of the last-level cache: as much must be read between two turns of a copy, and a half for what else is in it.
_CACHES = 1.5
# Weights of which more copies are needed stay in an outer cache, as those of small networks do: allocating memory for
# each variant takes longer than measuring it.
_MOST_COPIES, _COPIES_OF_SMALL = 12, 6
# Larger than the caches' share that survives a run of a network.
_LARGE_BYTES = 128 << 20
# Prime, so that an element taken from the wrong row differs from the right one although values repeat.
_PERIOD = 4_000_037


class CaseData:
    """Random activations and weights of a case, in ONNX layout, and its weights packed for each variant.

    Args:
        case: what is measured.
        weights: of a layer, in place of random ones.
    """

    def __init__(self, case: BenchmarkCase, weights: Sequence[Array] | None = None) -> None:
        random = np.random.default_rng(0)
        activations = len(case.inputs)
        allowed = case.integers or (None,) * (activations + len(case.weights))
        self.inputs = _in_parts(_all_random(case.inputs, allowed[:activations], random), case.row_of_parts)
        self._case = case
        scale = max((weight.elements for weight in case.weights), default=1) ** -0.25
        drawn = _all_random(case.weights, allowed[activations:], random, scale) if weights is None else weights
        stored = {variant.traits.weights for variant in case.variants} if weights is None else set()
        few = _of_four_bits if any(map(block_of, stored)) else _of_few_bits if stored - {None} else None
        self.weights = [few(array) for array in drawn] if few else drawn
        self._packed: dict[tuple[Packing, ...], list[Array]] = {}
        self._large: dict[tuple[Packing, ...], list[DeviceArray]] = {}
        self.results: list[Array] = []
        self._at: dict[CaseCall, CaseData] = {}

    def at(self, call: CaseCall) -> CaseData:
        """The data of a call of open sizes, with the same weights; the first call's is this."""
        if call == self._case.calls[0]:
            return self
        if call not in self._at:
            case, data = self._case.at(call), copy.copy(self)
            allowed = case.integers or (None,) * len(case.inputs)
            drawn = _all_random(case.inputs, allowed[: len(case.inputs)], np.random.default_rng(0))
            data.inputs = _in_parts(drawn, case.row_of_parts)
            self._at[call] = data
        return self._at[call]

    def ranges(self, implementation: Implementation) -> dict[int | None, QuantisedRange]:
        """Range of each tensor in ``implementation.ranges``; the result's is that of ``results``, or an adapt's
        input."""
        results = self.results or self.inputs
        return {
            value_range: _range(*self.inputs[value_range : value_range + 1])
            if value_range is not None
            else _result_range(results, implementation)
            for value_range in implementation.ranges
        }

    def copies(self, packings: tuple[Packing, ...], device: NativeDevice) -> list[list[DeviceArray]]:
        """Copies of the packed weights, enough that caches have evicted a copy when its turn comes again, if these are
        more than some megabytes.

        Variants share the buffers of large weights, because allocating memory takes longer than filling it.
        """
        if packings in self._large:
            return [self._large[packings]]
        packed = self._packed.get(packings) or self._pack(packings)
        size = sum(array.nbytes for array in packed)
        needed = -(-_evicting_bytes() // max(size, 1))
        copies = needed if needed <= _MOST_COPIES else _COPIES_OF_SMALL
        uploaded = [[_in_huge_pages(upload(array, device)) for array in packed] for _ in range(copies)]
        if size > _LARGE_BYTES:
            (self._large[packings],) = uploaded
        else:
            self._packed[packings] = packed
        return uploaded

    def _pack(self, packings: tuple[Packing, ...]) -> list[Array]:
        return [packing.apply(array) for packing, array in zip(packings, self.weights, strict=True)]


def _in_huge_pages(weight: DeviceArray) -> DeviceArray:
    """The weight, moved to such pages as a session has it in.

    In small ones what reads much takes up to half as long again in one process, and not in another.
    """
    if weight.shares_host_memory and weight.nbytes >= HUGE:
        take_huge_pages(weight.to_host().ctypes.data, weight.nbytes)
    return weight


def _evicting_bytes() -> int:
    """Bytes of weights of which no cache keeps any until they are read again in turn, unless it is very large."""
    return min(max(_COLD_BYTES, int(_CACHES * last_level_cache())), _MOST_BYTES)


def _result_range(results: list[Array], implementation: Implementation) -> QuantisedRange:
    """Range of the result; if the code fixes the step, that one, as such results then lie within 256 steps."""
    if implementation.step is None:
        return _range(*results)
    least = min(float(result.min(initial=0.0)) for result in results)
    zero = -128 - round(least / implementation.step)
    return QuantisedRange(implementation.step, min(max(zero, -128), 127), "int8")


def _range(*arrays: Array) -> QuantisedRange:
    low, high = (
        min(float(array.min(initial=0.0)) for array in arrays),
        max(float(array.max(initial=0.0)) for array in arrays),
    )
    return QuantisedRange.of(low, high)


def _all_random(
    tensors: Sequence[TensorType], allowed: Sequence[range | None], random: np.random.Generator, scale: float = 1.0
) -> list[Array]:
    return [_random(tensor, numbers, random, scale) for tensor, numbers in zip(tensors, allowed, strict=True)]


def _in_parts(arrays: list[Array], row: tuple[int, int] | None) -> list[Array]:
    """Activations with zeros in all but one part of each row that has parts, as of rows that are sorted by them."""
    if row is None:
        return arrays
    length, parts = row
    return [_one_part(array, parts) if array.shape[-1:] == (length,) else array for array in arrays]


def _one_part(array: Array, parts: int) -> Array:
    rows = array.reshape(-1, parts, array.shape[-1] // parts)
    kept = np.sort(np.random.default_rng(0).integers(0, parts, len(rows)))
    return np.where(np.arange(parts)[:, None] == kept[:, None, None], rows, 0).astype(array.dtype).reshape(array.shape)


def _of_few_bits(array: Array) -> Array:
    """The weight with its numbers of f32 rounded to some that f16 and bf16 have, for variants that store it so."""
    if array.dtype != np.float32:
        return array
    return array.astype(ml_dtypes.bfloat16).astype(np.float16).astype(np.float32)


def _of_four_bits(array: Array) -> Array:
    """Integers from -8 to 7 times a power of two, which rounding blocks of 16 or more along any axis leaves as they
    are: each has the least of these."""
    if array.dtype != np.float32 or not array.size:
        return array
    step = np.exp2(np.rint(np.log2(max(float(array.std()), 1e-30) / 2)))
    places = sum(np.ogrid[tuple(slice(size) for size in array.shape)])
    codes = np.where(places % 16 == 0, -8.0, np.clip(np.rint(array / step), -8, 7))
    return np.asarray(codes * step, np.float32)


def _random(tensor: TensorType, allowed: range | None, random: np.random.Generator, scale: float) -> Array:
    """Random values of a tensor: integers within ``allowed``, floating-point numbers multiplied by ``scale``."""
    dtype = tensor.numpy_dtype
    if dtype.kind not in "biu":
        drawn = random.standard_normal(min(tensor.elements, _PERIOD), np.float32).astype(dtype)
        return np.resize((drawn * scale).astype(dtype), tensor.shape)
    numbers = allowed or range(2 if dtype.kind == "b" else PLAIN)
    return random.integers(numbers.start, numbers.stop, tensor.shape).astype(dtype)
