"""What the machine does at most: kernels that do all the work they are counted for, measured once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.kernels.vector.peak import MultiplyAdds, Reading, Roofline
from sartor.codegen.linking.names import EXPORT_PREFIX
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.device_array import from_view, upload
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array, TensorSpec
from sartor.runtime.module import open_module
from sartor.tuning.cost_tables.roofline import Limit, peak_operations, read_bandwidth
from sartor.tuning.measuring.benchmark_case import BenchmarkCase, symbol_of
from sartor.tuning.measuring.compile_job import compile_case
from sartor.tuning.measuring.measure_job import MeasureSettings
from sartor.tuning.measuring.tuner import Tuner, TuneSettings
from sartor.tuning.records.hardware import last_level_cache
from sartor.tuning.records.measurement import Measurement
from sartor.tuning.store.store import Store
from sartor.tuning.workers.pool import WorkerPool

HOST = Target.create("cpu")
SETTINGS = TuneSettings(HOST, MeasureSettings("cpu", 1, 1e-3, rounds=3, seconds=0.2))
SMALL = 4 << 20


def run(roofline: Roofline, source: Array, folder: Path) -> Array:
    """What the kernel computes from ``source``."""
    task, variant = roofline.task, roofline.variant(HOST)
    case = BenchmarkCase(task.key, task.inputs, (), task.results, (variant,))
    compiled = compile_case(case, HOST, folder)
    assert not compiled.failures
    device = open_device("cpu", 1)
    program = Program(open_module(compiled.modules[variant.descriptor]).native, "peak", device, {})
    (view,) = program.invoke(EXPORT_PREFIX + symbol_of(case.key, variant), [upload(source, device).view])
    (result,) = task.results
    return from_view(view, device, TensorSpec("result", source.dtype.name, result.shape)).to_host()


def test_every_chain_of_every_workgroup_multiplies_and_adds(tmp_path: Path) -> None:
    code = MultiplyAdds(lanes=4, chains=3, steps=5, workgroups=2)
    source = np.arange(code.source.elements, dtype=np.float32)
    one, other, *starts = source.reshape(-1, code.lanes)
    expected = np.tile(np.concatenate([start + code.steps * one * other for start in starts]), code.workgroups)
    assert np.array_equal(run(Roofline("adds", code), source, tmp_path), expected)
    assert code.operations == 2 * expected.size * code.steps


def test_every_element_is_read(tmp_path: Path) -> None:
    code = Reading.of(lanes=4, size=1024, workgroups=3)
    source = np.random.default_rng(0).integers(0, 1000, code.source.elements).astype(np.int32)
    expected = source.reshape(code.workgroups, -1, code.lanes).sum(axis=1)
    assert code.source.bytes == 3 * 1024
    assert np.array_equal(run(Roofline("read", code), source, tmp_path), expected.ravel())


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with Store.in_memory() as opened:
        yield opened


@pytest.fixture(scope="module")
def limits() -> list[Limit]:
    return [peak_operations(HOST, 1), read_bandwidth(HOST, SMALL)]


@pytest.fixture(scope="module")
def measured(store: Store, limits: list[Limit]) -> Mapping[str, Mapping[str, Measurement]]:
    with WorkerPool(1) as pool:
        return Tuner(store, pool, SETTINGS, lambda *_: None).measure(each.case for each in limits)


def test_the_peak_is_measured_over_milliseconds(
    measured: Mapping[str, Mapping[str, Measurement]], limits: list[Limit]
) -> None:
    peak, bandwidth = limits
    (found,) = measured[peak.case.key].values()
    assert min(found.samples) > 2e-3
    assert peak.per_second(measured) == pytest.approx(peak.amount / min(found.samples))
    assert bandwidth.amount == SMALL
    assert bandwidth.per_second(measured) is not None


def test_what_was_measured_is_found_again(store: Store, measured: Mapping[str, Mapping[str, Measurement]]) -> None:
    again = [peak_operations(HOST, 1), read_bandwidth(HOST, SMALL)]
    with WorkerPool(1) as pool:
        known = Tuner(store, pool, SETTINGS, lambda *_: None).known(each.case for each in again)
    assert known == measured


def test_what_failed_has_no_rate(limits: list[Limit]) -> None:
    assert all(each.per_second({}) is None for each in limits)


def test_more_threads_have_more_to_do() -> None:
    one, four = (peak_operations(HOST, threads) for threads in (1, 4))
    assert four.amount == 4 * one.amount
    assert four.case.key != one.case.key


def test_the_last_level_cache_is_the_largest(tmp_path: Path) -> None:
    for index, size in enumerate(("48K", "2048K", "30M", "what")):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(f"{size}\n")
    assert last_level_cache(tmp_path) == 30 << 20
    assert last_level_cache(tmp_path / "absent") == 0
