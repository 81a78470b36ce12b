"""Which runs are timed, what first ones take longer, what they may be off by, and faults of devices."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from sartor.codegen.ir.variants.routine import Variant
from sartor.runtime.driver.signature import Array
from sartor.tuning.measuring.benchmark_case import PROBE
from sartor.tuning.measuring.checking import ROUNDING, layer_scales, variant_error
from sartor.tuning.measuring.compile_job import compile_cases
from sartor.tuning.measuring.first_runs import excess, first_runs
from sartor.tuning.measuring.measure_job import MeasureSettings, time_in_turn
from sartor.tuning.measuring.runs import first_execution
from sartor.tuning.measuring.runs.first_execution import first_executions
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status
from sartor.tuning.store.store import Store
from sartor.tuning.workers.pool import WorkerPool
from tests.tuning.measuring.device_faults import DeviceFault, Hang, LaunchFailure, LostDevice, OutOfMemory
from tests.tuning.measuring.test_tuner import ADD, SETTINGS, IdlePool, case, variant
from tests.tuning.store.bad_steps import AbortWhileMeasuring

# Fake runs take no time, so the limit of time is what ends them.
MEASURE_JOB_SETTINGS = MeasureSettings("vulkan", 1, 1e-3, rounds=3, seconds=0.0)


class _Runs:
    """Runs that say how long they took.

    Attributes:
        done: names of the runs, in order.
    """

    def __init__(self, **seconds: float) -> None:
        self.done: list[str] = []
        self.by_name: dict[str, Callable[[], float]] = {name: self._run(name, taken) for name, taken in seconds.items()}

    def _run(self, name: str, seconds: float) -> Callable[[], float]:
        def run() -> float:
            self.done.append(name)
            return seconds

        return run


def test_a_run_that_is_known_to_be_hopeless_is_not_repeated() -> None:
    runs = _Runs(stock=5.0, kernel=0.02)
    samples = time_in_turn(runs.by_name, "stock", MEASURE_JOB_SETTINGS, {"stock": 3.0})
    assert "stock" not in runs.done
    assert samples["stock"] == (3.0,)
    assert set(samples["kernel"]) == {0.02}


def test_a_run_that_takes_long_is_timed_if_it_may_be_the_fastest() -> None:
    runs = _Runs(stock=5.0, kernel=4.0)
    samples = time_in_turn(runs.by_name, "stock", MEASURE_JOB_SETTINGS, {"stock": 3.0})
    assert samples["stock"][0] == 5.0
    assert "stock" in runs.done


def test_a_run_that_takes_long_is_timed_if_there_is_no_other() -> None:
    runs = _Runs(stock=5.0)
    assert time_in_turn(runs.by_name, "stock", MEASURE_JOB_SETTINGS, {"stock": 3.0})["stock"][0] == 5.0


def test_a_run_that_proved_hopeless_once_is_not_repeated() -> None:
    runs = _Runs(stock=1.0, kernel=0.02)
    time_in_turn(runs.by_name, "stock", MEASURE_JOB_SETTINGS)
    assert Counter(runs.done)["stock"] == 1


def test_a_reshape_makes_nothing_hopeless() -> None:
    """It reads another layout than stock code, which has to be made."""
    runs = _Runs(stock=4e-6, reshape=1e-7)
    samples = time_in_turn(runs.by_name, "stock", replace(MEASURE_JOB_SETTINGS, seconds=1.0))
    assert len(samples["stock"]) == len(samples["reshape"])
    assert len(samples["stock"]) >= MEASURE_JOB_SETTINGS.rounds


_RESOURCES = "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
FAULTS: Mapping[str, tuple[DeviceFault, Status, str]] = {
    "memory": (OutOfMemory(), Status.OUT_OF_MEMORY, "VK_ERROR_OUT_OF_DEVICE_MEMORY"),
    "launch": (LaunchFailure(), Status.CRASHED, "too many resources"),
    "lost": (LostDevice(), Status.CRASHED, "VK_ERROR_DEVICE_LOST"),
    "hang": (Hang(), Status.TIMEOUT, ""),
    # What a driver of NVIDIA says.
    "cudamemory": (OutOfMemory("CUDA_ERROR_OUT_OF_MEMORY"), Status.OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"),
    "cudalaunch": (LaunchFailure(_RESOURCES), Status.CRASHED, _RESOURCES),
    # After such an access nothing runs in the process any more.
    "cudalost": (LostDevice("CUDA_ERROR_ILLEGAL_ADDRESS"), Status.CRASHED, "CUDA_ERROR_ILLEGAL_ADDRESS"),
}
# A worker that hangs is killed after this time, twice: with the other variants, and beside candidate 0 alone.
_PATIENCE = 6.0


@pytest.fixture(scope="module")
def found() -> Iterator[Mapping[str, Mapping[str, Measurement]]]:
    settings = replace(SETTINGS, measure_timeout=_PATIENCE)
    cases = [
        case(variant("stock", ADD), variant(name, ADD, fault), variant("other", ADD.replace("%out", "%sum")), key=name)
        for name, (fault, _, _) in FAULTS.items()
    ]
    with WorkerPool(1) as pool, Store.in_memory() as store:
        yield Tuner(store, pool, settings, lambda *_: None).measure(cases)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_a_status_and_the_others_are_measured(
    fault: str, found: Mapping[str, Mapping[str, Measurement]]
) -> None:
    _, status, reason = FAULTS[fault]
    statuses = {name: each.status for name, each in found[fault].items()}
    assert statuses == {"stock": Status.OK, fault: status, "other": Status.OK}
    assert reason in found[fault][fault].message


F32 = 1e-3
RANDOM = np.random.default_rng(0)
# Channels of a convolution whose filters differ in size, by up to a thousand.
SIZES = np.logspace(0, -3, 16).reshape(1, 16, 1, 1)
X = RANDOM.standard_normal((1, 16, 12, 12)).astype(np.float32)
W = RANDOM.standard_normal((16, 16)).astype(np.float32) * SIZES.reshape(16, 1).astype(np.float32)


def _layer(x: Array, w: Array) -> Array:
    return np.asarray(np.maximum(np.einsum("oi,nihw->nohw", w, x), 0), np.float32)


RIGHT = _layer(X, W)


def _error(output: Array, dtype: str = "f32") -> float:
    return variant_error([output], [RIGHT], dtype, layer_scales([RIGHT]))


@pytest.mark.parametrize("channel", range(16))
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_one_wrong_channel_is_seen_however_small_it_is(channel: int, dtype: str) -> None:
    for wrong in (0.0, -1.0, 1.5):
        output = RIGHT.copy()
        output[:, channel] *= wrong
        assert _error(output, dtype) > max(F32, ROUNDING.get(dtype, 0.0))


def test_what_winograds_method_is_off_by_is_not_blamed() -> None:
    """100 units in the last place of the largest sum in a channel, as F(6x6, 3x3) may be."""
    largest = RIGHT.max(axis=(0, 2, 3), keepdims=True)
    assert _error(RIGHT + 100 * 2.0**-24 * largest * RANDOM.uniform(-1, 1, RIGHT.shape)) < F32


@pytest.mark.parametrize(("dtype", "kind"), [("bf16", ml_dtypes.bfloat16), ("f16", np.float16)])
def test_rounding_to_16_bits_is_not_blamed(dtype: str, kind: type) -> None:
    rounded = _layer(X.astype(kind).astype(np.float32), W.astype(kind).astype(np.float32))
    assert _error(rounded.astype(kind).astype(np.float32), dtype) < ROUNDING[dtype]


def test_results_in_8_bits_are_on_one_grid() -> None:
    step = RIGHT.max() / 255
    rounded = (np.rint(RIGHT / step) * step).astype(np.float32)
    assert _error(rounded, "i8") < ROUNDING["i8"]
    assert _error(rounded) > F32
    assert variant_error([], [RIGHT], "i8") == math.inf


CASE = case(variant("stock", ADD), variant("other", ADD.replace("%out", "%sum")))
KEY = MeasurementKey("task", "stock", "source", "hardware", 1, "runtime", "cpu")


@pytest.mark.parametrize(
    ("first", "later", "expected"),
    [((5.0, 5.0, 9.0), (2.0, 2.0, 2.0), 3.0), ((1.0, 1.0), (2.0, 2.0), 0.0), ((4.0,), (1.5,), 2.5)],
)
def test_it_is_what_the_first_execution_took_beyond_later_ones(
    first: tuple[float, ...], later: tuple[float, ...], expected: float
) -> None:
    assert excess(Measurement(KEY, Status.OK, first, later)) == expected


def test_they_are_measured_once_and_are_no_times_of_later_executions(tmp_path: Path, pool: WorkerPool) -> None:
    with Store.in_memory() as store:
        tuner = Tuner(store, pool, SETTINGS, lambda *_: None, tmp_path)
        found = first_runs([CASE], tuner, pool)
        assert found.keys() == {("task", "stock"), ("task", "other")}
        assert all(0 <= each < 1 for each in found.values())
        assert tuner.known([CASE])["task"] == {}
        idle = IdlePool(1)
        assert first_runs([CASE], Tuner(store, idle, SETTINGS, lambda *_: None, tmp_path), idle) == found


def test_they_are_measured_again_if_other_programs_computed(tmp_path: Path, pool: WorkerPool) -> None:
    with Store.in_memory() as store, WorkerPool(1) as quiet:
        first_runs([CASE], Tuner(store, pool, SETTINGS, lambda *_: None, tmp_path), pool)
        before = [*store.measurements()]
        store.put_many(replace(each, samples=(9.0,), baseline_samples=(1.0,), foreign_load=0.5) for each in before)
        quiet.is_quiet = lambda: True  # type: ignore[method-assign]
        found = first_runs([CASE], Tuner(store, quiet, SETTINGS, lambda *_: None, tmp_path), quiet)
        assert len(found) == 2
        assert all(each < 1 for each in found.values())


def test_what_crashes_is_missing(tmp_path: Path, pool: WorkerPool) -> None:
    crashing = case(variant("crash", ADD, AbortWhileMeasuring()), key="crashing")
    with Store.in_memory() as store:
        tuner = Tuner(store, pool, SETTINGS, lambda *_: None, tmp_path)
        assert first_runs([crashing, CASE], tuner, pool).keys() == {("task", "stock"), ("task", "other")}


def test_each_first_execution_is_of_code_that_was_loaded_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted runner is slow in the first call of each program, the probe's as well; only the excess over the
    probe's counts."""
    loaded: list[str] = []

    class Planted:
        def __init__(self, of: object, variant: Variant, program: object, *_: object) -> None:
            self.name, self.calls = variant.descriptor, 0
            loaded.append(self.name)

        def run(self) -> None:
            self.calls += 1

    def seconds(runner: Planted) -> float:
        runner.run()
        first = {"stock": 5.0, "other": 2.0, "probe": 1.0}[runner.name]
        return first if runner.calls == 1 else 0.5

    monkeypatch.setattr(first_execution, "VariantRunner", Planted)
    monkeypatch.setattr(first_execution, "_seconds", seconds)
    target = SETTINGS.target
    (probe,) = compile_cases([PROBE], target, tmp_path)
    (compiled,) = compile_cases([CASE], target, tmp_path)
    found = first_executions(CASE, compiled.modules, next(iter(probe.modules.values())), "cpu", 1)
    assert found["stock"].first == (5.0,) * 5
    assert found["stock"].later == (0.5 + 0.5,) * 5
    assert found["other"].first == (2.0,) * 5
    assert loaded.count("stock") == loaded.count("other") == 5
    assert loaded.count("probe") == 1 + 5
