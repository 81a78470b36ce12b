"""Run one variant on arguments in its own schemas.

Short variants are called several times in a row, because the cost of a call varies by as much as their time. A run in
which another program got the processor is repeated.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.layouts import layout_packing
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.variants.routine import Variant
from sartor.codegen.linking.names import EXPORT_PREFIX, REPEAT_PREFIX, REPEATS
from sartor.runtime.driver.device_array import DeviceArray, from_view, upload
from sartor.runtime.driver.native_device import NativeDevice
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array, TensorSpec
from sartor.runtime.driver.waiting import busiest_seconds
from sartor.tuning.calibration.quantised_range import QuantisedRange
from sartor.tuning.measuring.benchmark_case import SHORT_SECONDS, BenchmarkCase, may_be_short, symbol_of
from sartor.tuning.measuring.case_data import CaseData
from sartor.tuning.measuring.runs.interruptions import uninterrupted

_RESOLUTION = 1e-7
# A call of a GPU takes milliseconds to submit and to wait for on Mesa's software driver, so a variant that takes less
# than some of these is short there.
_SHORT_WITH_LAUNCH = 2e-2
# What a driver may take to compile a kernel when it first runs. For candidate 0 Mesa takes less than a second when it
# is alone; for register tiles, whose products are written out, up to eight.
_COMPILING_SECONDS = 2.0
_COMPILING_TILES_SECONDS = 20.0
# In so long a call of a CPU, what only the first one does is less than the variation between calls.
_TELLING_SECONDS = 0.25


class TimedRunner(Protocol):
    """Runs one variant, and times it.

    Attributes:
        packed_bytes: size of its packed weights.
        error: of its results.
    """

    packed_bytes: int
    error: float

    @property
    def least_seconds(self) -> float:
        """What a call takes at least."""

    @property
    def by_call(self) -> tuple[tuple[float, ...], ...]:
        """What ``timed`` found with the sizes of each call that counts; empty if sizes are known."""

    def timed(self, overhead: float) -> float:
        """Seconds of one call, without ``overhead``, the cost of a run."""

    def warm_up(self) -> None:
        """Call it several times untimed, so that its memory is allocated."""

    def outputs(self) -> list[Array]:
        """Run it once; returns results in ONNX layout.

        Raises:
            DeviceError: if the variant does not run.
        """


class VariantRunner:
    """Runs one variant on rotating copies of its arguments.

    Args:
        case: of the variant, with its sizes.
        variant: what runs.
        program: has its code.
        device: where it runs.
        data: arguments.
        copies: of its packed weights; None for new ones.

    Attributes:
        packed_bytes: size of its packed weights.
        error: of its results.
        calls: how often ``run`` calls it.
        least_seconds: what a call takes at least, by the first one; of candidate 0 on a CPU what a long first one took.
    """

    def __init__(
        self,
        case: BenchmarkCase,
        variant: Variant,
        program: Program,
        device: NativeDevice,
        data: CaseData,
        copies: Sequence[Sequence[DeviceArray]] | None = None,
    ) -> None:
        self._case = case
        self._implementation = variant.implementation
        self._is_candidate_0 = variant.descriptor == case.variants[0].descriptor
        self._program = program
        self._device = device
        self._symbol = symbol_of(case.key, variant)
        copies = copies or data.copies(self._implementation.packings, device)
        self.packed_bytes = sum(array.nbytes for array in copies[0])
        self.error = 0.0
        self.calls = 1
        self.least_seconds = 0.0
        self._is_settled = device.host_memory
        ranges = data.ranges(self._implementation)
        inputs = [
            upload(_stored(array, tensor, schema, ranges.get(slot)), device)
            for slot, (array, tensor, schema) in enumerate(
                zip(data.inputs, case.inputs, self._implementation.inputs, strict=True)
            )
        ]
        self._range = ranges.get(None)
        numbers = [upload(ranges[value_range].numbers, device) for value_range in self._implementation.ranges]
        self._arrays = [[*inputs, *weights, *numbers] for weights in copies]
        symbols = self._implementation.symbols
        self._sizes = [upload(np.zeros(case.size_of(symbol), np.int8), device) for symbol in symbols]
        self._turn = itertools.cycle(range(len(copies)))

    @property
    def by_call(self) -> tuple[tuple[float, ...], ...]:
        """Nothing: its sizes are those of one call."""
        return ()

    def timed(self, overhead: float) -> float:
        """Seconds of one call, without ``overhead``, the cost of a run.

        A software driver's threads tell their processor time, which contains neither that cost nor other programs'.
        """
        if self._device.software:
            taken = busiest_seconds(self.run)
            if not self._is_settled and taken > _SHORT_WITH_LAUNCH:
                # Mesa at times compiles a kernel again when it runs for the second time, for some seconds.
                taken = min(taken, busiest_seconds(self.run))
            self._is_settled = True
            return max(taken, _RESOLUTION)
        taken = self.uninterrupted()
        if not self._is_settled and self._settle(taken):
            taken = self.uninterrupted()
        return max((taken - overhead) / self.calls, _RESOLUTION)

    def uninterrupted(self) -> float:
        """Seconds of a run, without what other programs take, as far as that is known."""
        return uninterrupted(self.run, on_this_thread=self._device.blocking)

    def run(self) -> None:
        prefix = EXPORT_PREFIX if self.calls == 1 else REPEAT_PREFIX
        arguments = [array.view for _ in range(self.calls) for array in self._arrays[next(self._turn)]]
        self._program.invoke(prefix + self._symbol, [*arguments, *(size.view for size in self._sizes)])

    def _settle(self, seconds: float) -> bool:
        """Call it several times in a row from now on if it is short; returns whether it is."""
        self._is_settled = True
        shortest = SHORT_SECONDS if self._device.host_memory else _SHORT_WITH_LAUNCH
        is_short = seconds < shortest and may_be_short(self._case, is_cpu=self._device.host_memory)
        self.calls = REPEATS if is_short else 1
        return is_short

    def warm_up(self) -> None:
        """Call it several times untimed, so that its memory is allocated."""
        if self.calls > 1:
            self.run()

    def _called(self, arguments: list[Any]) -> tuple[float, list[Any]]:
        """Seconds of one call, and its results; of a software driver the processor time, as ``timed`` counts it."""
        views: list[Any] = []

        def call() -> None:
            views.extend(self._program.invoke(EXPORT_PREFIX + self._symbol, arguments))

        if self._device.software:
            return busiest_seconds(call), views
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin, views

    def outputs(self) -> list[Array]:
        """Run the variant once; returns results in ONNX layout.

        On a CPU the call tells how often ``run`` calls it, and a long one of candidate 0 how long it takes. A GPU's
        driver compiles a kernel when it first runs, so that there only a very long first call tells anything.

        Raises:
            DeviceError: if the variant does not run.
        """
        seconds, views = self._called([array.view for array in (*self._arrays[0], *self._sizes)])
        if self._device.host_memory:
            self._settle(seconds)
            is_telling = self._is_candidate_0 and seconds > _TELLING_SECONDS
            self.least_seconds = seconds if is_telling else 0.0
        else:
            self.least_seconds = least_seconds(seconds, is_candidate_0=self._is_candidate_0)
        return [
            _to_plain(from_view(view, self._device, _spec(result, schema)).to_host(), result, schema, self._range)
            for view, result, schema in zip(views, self._case.results, self._implementation.outputs, strict=True)
        ]


def least_seconds(first: float, *, is_candidate_0: bool) -> float:
    """What a call takes at least, if the first one, in which a driver compiles the kernel, took ``first`` seconds."""
    return max(0.0, first - (_COMPILING_SECONDS if is_candidate_0 else _COMPILING_TILES_SECONDS))


def _spec(logical: TensorType, schema: Schema) -> TensorSpec:
    physical = schema.physical(logical)
    return TensorSpec("result", physical.numpy_dtype.name, physical.shape)


def _stored(array: Array, logical: TensorType, schema: Schema, numbers: QuantisedRange | None) -> Array:
    """A tensor as it lies in memory in a schema; ``numbers`` is its range if that is quantised."""
    packed = schema.packing(logical).apply(array)
    return packed if numbers is None else numbers.quantise(packed)


def _to_plain(array: Array, logical: TensorType, schema: Schema, numbers: QuantisedRange | None) -> Array:
    """Convert a stored tensor to ONNX's layout and type; packing a tensor of indices gives the inverse permutation."""
    array = array if numbers is None else numbers.dequantise(array)
    array = array.astype(logical.numpy_dtype, copy=False)
    packing = layout_packing(logical, schema.layout)
    if not packing.steps:
        return array.reshape(logical.shape)
    source = packing.apply(np.arange(logical.elements, dtype=np.int64).reshape(logical.shape))
    plain = np.empty(logical.elements, array.dtype)
    plain[source.reshape(-1)] = array.reshape(-1)
    return plain.reshape(logical.shape)
