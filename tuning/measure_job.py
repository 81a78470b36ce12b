"""Worker side: run the variants of one unit, compare them with candidate 0, and time them in turn.

Weights are rotated over copies, so that they come from where they come from in the network: not from the nearest
cache. Activations are not: there the layer before has just written them. Variants that cannot win any more are dropped
after two rounds. Short ones are called several times in a row: what a call costs varies by as much as they take.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sartor.codegen.bench_module import EXPORT_PREFIX, REPEAT_PREFIX, REPEATS
from sartor.codegen.layer import TensorType
from sartor.codegen.layouts import form_packing, physical_type, split_form
from sartor.codegen.packing import Packing
from sartor.codegen.routine import Implementation, Variant
from sartor.errors import DeviceError
from sartor.runtime.device import open_device
from sartor.runtime.device_array import DeviceArray, from_view, upload
from sartor.runtime.iree_runtime import NativeDevice, Program
from sartor.runtime.module import open_module
from sartor.runtime.reference import relative_error
from sartor.runtime.signature import Array, TensorSpec
from sartor.tuning.calibration.quantised_range import QuantisedRange
from sartor.tuning.measurement import Status
from sartor.tuning.unit import PROBE, SHORT_SECONDS, Unit, may_be_short, symbol_of


@dataclass(frozen=True)
class MeasureSettings:
    """How long and how strictly to measure.

    Attributes:
        device: as ``open_device`` takes it.
        threads: CPU workers.
        max_error: largest relative error against candidate 0.
        rounds: samples of a variant that may win.
        seconds: no further round begins after this time, once there are a few.
        hopeless: a variant this many times slower than the best is dropped after two rounds.
    """

    device: str
    threads: int
    max_error: float
    rounds: int = 12
    seconds: float = 1.0
    hopeless: float = 1.6


@dataclass(frozen=True)
class VariantSamples:
    """What measuring one variant gave."""

    status: Status
    samples: tuple[float, ...] = ()
    baseline: tuple[float, ...] = ()
    error: float | None = None
    message: str = ""
    packed_bytes: int = 0


ROUNDING = {"f16": 5e-3, "bf16": 3e-2, "i8": 1e-1}
"""What rounding to a type may make of a layer's largest result; what a network may lose is measured on the network."""

_COLD_BYTES = 24 << 20
_MOST_COPIES = 6
# More than caches keep while a network runs.
_LARGE_BYTES = 128 << 20
_SURE_ROUNDS = 2
_LEAST_ROUNDS = 4
# After a single run, which may have been disturbed, and once there are enough to tell.
_PLAINLY_HOPELESS = 2.5
_NEARLY_HOPELESS = 1.25
_CHEAP_SECONDS = 0.01
# Prime, so that what repeats does not hide elements that are taken from another row.
_PERIOD = 4_000_037
_MINIMUM_SECONDS = 0.02
_PROBE_CALLS = 200
_RESOLUTION = 1e-7


@functools.cache
def _device(name: str, threads: int) -> NativeDevice:
    """One device per worker: opening one starts threads."""
    return open_device(name, threads if name == "cpu" else None)


@functools.cache
def _call_overhead(probe: Path, name: str, threads: int) -> float:
    """Seconds that a call from here costs beyond the dispatches it makes, which a layer in a network does not pay."""
    device = _device(name, threads)
    variant = PROBE.variants[0]
    runner = _Runner(PROBE, variant, Program(open_module(probe).native, probe.name, device, {}), device, _Data(PROBE))
    runner.outputs()
    runner.calls = 1
    return float(np.median([runner.timed(0.0) for _ in range(_PROBE_CALLS)]))


def measure_unit(
    unit: Unit, modules: Mapping[str, Path], settings: MeasureSettings, probe: Path
) -> dict[str, VariantSamples]:
    """Check and time the compiled variants of a unit; results by descriptor.

    Args:
        unit: what was compiled.
        modules: descriptor to the file that runs the variant.
        settings: how to measure.
        probe: the compiled ``PROBE``, which shows what a call costs that does next to nothing.
    """
    overhead = _call_overhead(probe, settings.device, settings.threads)
    device = _device(settings.device, settings.threads)
    programs = {path: Program(open_module(path).native, path.name, device, {}) for path in set(modules.values())}
    data = _Data(unit)
    runners: dict[str, _Runner] = {}
    results: dict[str, VariantSamples] = {}
    reference: list[Array] | None = None
    for variant in unit.variants:
        if variant.descriptor not in modules:
            continue
        try:
            runner = _Runner(unit, variant, programs[modules[variant.descriptor]], device, data)
            outputs = runner.outputs()
        except DeviceError as error:
            results[variant.descriptor] = VariantSamples(Status.CRASHED, message=str(error))
            continue
        reference = reference or outputs
        data.results = reference
        error_value = relative_error(outputs, reference)
        if error_value > max(settings.max_error, ROUNDING.get(variant.dtype, 0.0)):
            message = f"relative error {error_value:.2g} against {unit.variants[0].descriptor}"
            results[variant.descriptor] = VariantSamples(Status.WRONG_RESULT, error=error_value, message=message)
            continue
        runner.error = error_value
        runner.warm_up()
        runners[variant.descriptor] = runner
    return results | _timed(runners, unit.variants[0].descriptor, settings, overhead)


def _timed(
    runners: dict[str, _Runner], baseline: str, settings: MeasureSettings, overhead: float
) -> dict[str, VariantSamples]:
    runs = {name: functools.partial(each.timed, overhead) for name, each in runners.items()}
    samples = time_in_turn(runs, baseline, settings)
    reference = samples.get(baseline, ())
    return {
        name: VariantSamples(
            Status.OK, samples[name], reference if name != baseline else (), runner.error, "", runner.packed_bytes
        )
        for name, runner in runners.items()
    }


def time_in_turn(
    runs: Mapping[str, Callable[[], float]], baseline: str, settings: MeasureSettings
) -> dict[str, tuple[float, ...]]:
    """Round-robin timing; the hopeless drop out, the rest goes on until the rounds or the time are used up.

    Beside others candidate 0's time does not count: it may take a thousand times as long as the best.

    Args:
        runs: what to time; each returns the seconds of one call.
        baseline: candidate 0 among them.
        settings: rounds and limits.
    """
    samples: dict[str, list[float]] = {name: [] for name in runs}
    active, spent = list(runs), 0.0
    for done in itertools.count(1):
        for name in active if done % 2 else reversed(active):
            begin = time.perf_counter()
            samples[name].append(runs[name]())
            if name != baseline or len(active) == 1:
                spent += time.perf_counter() - begin
        enough = done >= settings.rounds and spent > _MINIMUM_SECONDS
        if not active or enough or (done >= _LEAST_ROUNDS and spent > settings.seconds):
            break
        active = _hopeful(active, samples, settings.hopeless, done)
    return {name: tuple(taken) for name, taken in samples.items()}


def _hopeful(active: list[str], samples: Mapping[str, list[float]], hopeless: float, done: int) -> list[str]:
    """Those that may still be the fastest after so many rounds; what takes little is run twice in any case."""
    best = min(min(samples[name]) for name in active)
    if done < _SURE_ROUNDS:
        return [each for each in active if samples[each][0] <= max(_PLAINLY_HOPELESS * best, _CHEAP_SECONDS)]
    most = hopeless if done < _LEAST_ROUNDS else _NEARLY_HOPELESS
    return [each for each in active if min(samples[each]) <= most * best]


class _Data:
    """Random activations and weights of a unit, in ONNX layout, and weights packed as variants ask for them."""

    def __init__(self, unit: Unit) -> None:
        random = np.random.default_rng(0)
        self.inputs = [_random(each, random) for each in unit.inputs]
        scale = max((each.elements for each in unit.weights), default=1) ** -0.25
        self.weights = [_random(each, random, scale) for each in unit.weights]
        self._packed: dict[tuple[Packing, ...], list[Array]] = {}
        self._large: dict[tuple[Packing, ...], list[DeviceArray]] = {}
        self.results: list[Array] = []

    def ranges(self, implementation: Implementation) -> dict[int | None, QuantisedRange]:
        """Of everything that code asks for; the result's is that of candidate 0, or of an adapt's own input."""
        results = self.results or self.inputs
        return {
            each: _range(*(results if each is None else self.inputs[each : each + 1])) for each in implementation.ranges
        }

    def copies(self, packings: tuple[Packing, ...], device: NativeDevice) -> list[list[DeviceArray]]:
        """The weights in these packings, so often that no cache keeps them until it is a copy's turn again.

        Large ones are there once for all variants, and nowhere else: memory takes longer to get than to fill.
        """
        if packings in self._large:
            return [self._large[packings]]
        packed = self._packed.get(packings) or self._pack(packings)
        size = sum(array.nbytes for array in packed)
        copies = min(max(_COLD_BYTES // max(size, 1), 1), _MOST_COPIES)
        uploaded = [[upload(array, device) for array in packed] for _ in range(copies)]
        if size > _LARGE_BYTES:
            (self._large[packings],) = uploaded
        else:
            self._packed[packings] = packed
        return uploaded

    def _pack(self, packings: tuple[Packing, ...]) -> list[Array]:
        return [each.apply(array) for each, array in zip(packings, self.weights, strict=True)]


def _range(*arrays: Array) -> QuantisedRange:
    low, high = (
        min(float(each.min(initial=0.0)) for each in arrays),
        max(float(each.max(initial=0.0)) for each in arrays),
    )
    return QuantisedRange.of(low, high)


def _random(tensor: TensorType, random: np.random.Generator, scale: float = 1.0) -> Array:
    """Plausible values; floating-point ones are multiplied by ``scale``."""
    dtype = tensor.numpy_dtype
    if dtype.kind == "f":
        drawn = random.standard_normal(min(tensor.elements, _PERIOD), np.float32).astype(dtype)
        return np.resize((drawn * scale).astype(dtype), tensor.shape)
    if dtype.kind == "b":
        return random.integers(0, 2, tensor.shape).astype(bool)
    if tensor.dtype in ("i64", "i32"):
        # Likely indices into something: zero is the one that always exists.
        return np.zeros(tensor.shape, dtype)
    return random.integers(0, 64, tensor.shape).astype(dtype)


class _Runner:
    """Runs one variant on rotating copies of its arguments.

    Attributes:
        packed_bytes: size of its weights.
        error: of its results.
        calls: how often ``run`` calls it.
    """

    def __init__(self, unit: Unit, variant: Variant, program: Program, device: NativeDevice, data: _Data) -> None:
        self._unit = unit
        self._implementation = variant.implementation
        self._program = program
        self._device = device
        self._symbol = symbol_of(unit.key, variant)
        copies = data.copies(self._implementation.packings, device)
        self.packed_bytes = sum(array.nbytes for array in copies[0])
        self.error = 0.0
        self.calls = 1
        ranges = data.ranges(self._implementation)
        inputs = [
            upload(_stored(array, each, form, ranges.get(slot)), device)
            for slot, (array, each, form) in enumerate(
                zip(data.inputs, unit.inputs, self._implementation.inputs, strict=True)
            )
        ]
        self._range = ranges.get(None)
        numbers = [upload(ranges[each].numbers, device) for each in self._implementation.ranges]
        self._arrays = [[*inputs, *weights, *numbers] for weights in copies]
        self._turn = itertools.cycle(range(len(copies)))

    def timed(self, overhead: float) -> float:
        """Seconds of one call, of which each run has ``overhead`` besides."""
        begin = time.perf_counter()
        self.run()
        return max((time.perf_counter() - begin - overhead) / self.calls, _RESOLUTION)

    def run(self) -> None:
        prefix = EXPORT_PREFIX if self.calls == 1 else REPEAT_PREFIX
        arguments = [each.view for _ in range(self.calls) for each in self._arrays[next(self._turn)]]
        self._program.invoke(prefix + self._symbol, arguments)

    def warm_up(self) -> None:
        """Have the memory of several calls allocated before one of them is timed."""
        if self.calls > 1:
            self.run()

    def outputs(self) -> list[Array]:
        """Results in ONNX layout; how long they take decides how often the variant is called from now on."""
        arguments = [each.view for each in self._arrays[0]]
        begin = time.perf_counter()
        views = self._program.invoke(EXPORT_PREFIX + self._symbol, arguments)
        is_short = time.perf_counter() - begin < SHORT_SECONDS and may_be_short(self._unit)
        self.calls = REPEATS if is_short else 1
        form = self._implementation.output
        return [
            _to_plain(from_view(view, self._device, _spec(each, form)).to_host(), each, form, self._range)
            for view, each in zip(views, self._unit.results, strict=True)
        ]


def _spec(logical: TensorType, form: str) -> TensorSpec:
    physical = physical_type(logical, form)
    return TensorSpec("result", physical.numpy_dtype.name, physical.shape)


def _stored(array: Array, logical: TensorType, form: str, numbers: QuantisedRange | None) -> Array:
    """A tensor as it lies in memory in a form; ``numbers`` is its range if the form is quantised."""
    found = form_packing(logical, form).apply(array)
    return found if numbers is None else numbers.quantise(found)


def _to_plain(array: Array, logical: TensorType, form: str, numbers: QuantisedRange | None) -> Array:
    """Undo a form: where each element of an enumerated tensor went says where it came from."""
    array = array if numbers is None else numbers.dequantise(array)
    array = array.astype(logical.numpy_dtype, copy=False)
    packing = form_packing(logical, split_form(form)[1])
    if not packing.steps:
        return array.reshape(logical.shape)
    source = packing.apply(np.arange(logical.elements, dtype=np.int64).reshape(logical.shape))
    plain = np.empty(logical.elements, array.dtype)
    plain[source.reshape(-1)] = array.reshape(-1)
    return plain.reshape(logical.shape)
