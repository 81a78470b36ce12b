"""Measuring on workers in processes of their own, which are killed midway."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="Dask is not installed: pip install 'sartor[cluster]'")

import dask

from sartor.codegen.ir.target import Target
from sartor.errors import CompileError, DeviceError, UsageError
from sartor.tuning.cluster.link import DaskLink, Scheduler
from sartor.tuning.cluster.machine import Machine, this_machine
from sartor.tuning.cluster.party import find_cluster, remote_pool
from sartor.tuning.cluster.remote_pool import RemotePool
from sartor.tuning.cost_tables.roofline import peak_operations
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.records.measurement import Status
from sartor.tuning.store.store import Store
from sartor.tuning.workers.entry_points import entry_point
from sartor.tuning.workers.pool import JobResult, JobStatus
from tests.tuning.cluster.processes import Processes, kill, processes, wait_until
from tests.tuning.cluster.remote_jobs import abort, note
from tests.tuning.measuring.planted_arbiters import Adding, Unwanted
from tests.tuning.measuring.test_tuner import ADD, BODY, SETTINGS, case, variant

TARGET = Target.create("cpu", "x86-64-v3")
NOTE = entry_point(note)
TIMEOUT = 60.0
OTHER = "A processor that nobody has"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """A scheduler with two workers on machines of one kind."""
    with processes(tmp_path_factory.mktemp("cluster")) as made:
        made.worker("one")
        made.worker("two")
        wait_until(lambda: len(connected(made)) == 2)
        yield made


def opened(stack: ExitStack, made: Processes, folder: Path, wanted: str | None = None) -> RemotePool:
    """A pool on the workers' machines, which are taken for equally fast."""
    found = stack.enter_context(find_cluster(Scheduler.of(made.address), TARGET, wanted))
    pool = stack.enter_context(remote_pool(found, 1, folder, None, compiled_there=()))
    yardstick = {"number": -1, "log": str(folder / "yardsticks"), "seconds": 0.0}
    pool.compare_machines(NOTE, [("yardstick", yardstick)], TIMEOUT, lambda _: 1.0)
    return pool


def connected(made: Processes) -> list[Machine]:
    """Machines of the workers that are connected to the scheduler."""
    link = DaskLink(Scheduler.of(made.address))
    try:
        return list((link.machines() or {}).values())
    finally:
        link.close()


def test_workers_that_are_connected_are_never_taken_for_gone(cluster: Processes) -> None:
    """Dask's client asks for all but the workers at times, and keeps that answer in place of the one before."""
    with dask.config.set({"distributed.client.scheduler-info-interval": "1ms"}):
        link = DaskLink(Scheduler.of(cluster.address))
        try:
            assert all(len(link.machines() or ()) == 2 for _ in range(200))
        finally:
            link.close()


def in_batch(pool: RemotePool, log: Path, count: int, seconds: float) -> Iterator[JobResult]:
    """Results of jobs that take some time each."""
    with pool.batch(NOTE, TIMEOUT) as batch:
        for number in range(count):
            batch.add(str(number), {"number": number, "log": str(log), "seconds": seconds})
        yield from batch.rest()


def times(log: Path) -> dict[tuple[int, str], list[float]]:
    """Beginnings and ends by number and worker."""
    found: dict[tuple[int, str], list[float]] = {}
    for line in log.read_text().splitlines():
        _, number, worker, moment = line.split()
        found.setdefault((int(number), worker), []).append(float(moment))
    return found


def test_each_machine_measures_one_thing_at_a_time_and_all_of_them_measure(cluster: Processes, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with ExitStack() as stack:
        pool = opened(stack, cluster, tmp_path)
        assert sorted(each.value for each in in_batch(pool, log, 8, 0.5)) == list(range(8))
    found = times(log)
    assert len({worker for _, worker in found}) == 2
    for (number, worker), (begin, _) in found.items():
        others = [span for (other, where), span in found.items() if where == worker and other != number]
        assert not any(since <= begin < until for since, until in others)


def test_crashes_and_hangs_end_a_job_and_not_the_worker(cluster: Processes, tmp_path: Path) -> None:
    with ExitStack() as stack:
        pool = opened(stack, cluster, tmp_path)
        (crashed,) = pool.map_unordered(entry_point(abort), [("a", {})], TIMEOUT, quiet=True)
        assert crashed.status is JobStatus.CRASHED
        slow = {"number": 0, "log": str(tmp_path / "log"), "seconds": 60.0}
        (hung,) = pool.map_unordered(NOTE, [("b", slow)], 0.5, quiet=True)
        assert hung.status is JobStatus.TIMEOUT
        (right,) = pool.map_unordered(NOTE, [("c", {**slow, "seconds": 0.0})], TIMEOUT, quiet=True)
        assert right.value == 0


def test_variants_are_judged_and_timed_where_there_is_no_compiler_and_no_onnx(
    cluster: Processes, tmp_path: Path
) -> None:
    """Both workers cannot import them; who is right is asked here, and stored under the workers' kind of machine."""
    disputed = case(variant("stock", BODY.format(op="subf")), variant("other", ADD), key="disputed")
    agreed = case(variant("stock", ADD), variant("other", ADD.replace("%out", "%sum")), key="agreed")
    kernel = peak_operations(TARGET, 1).case
    arbiters = {"disputed": Adding(16), "agreed": Unwanted(16), kernel.key: None}
    settings = replace(SETTINGS, target=TARGET)
    with ExitStack() as stack:
        found = stack.enter_context(find_cluster(Scheduler.of(cluster.address), TARGET, None))
        pool = stack.enter_context(remote_pool(found, 1, tmp_path, None, compiled_there=()))
        store = stack.enter_context(Store.open(tmp_path / "tuning.db", hardware=found.hardware))
        tuner = Tuner(store, pool, settings, lambda *_: None, tmp_path, lambda case: arbiters[case.key])
        measured = tuner.measure([disputed, agreed, kernel])
    assert {name: each.status for name, each in measured["disputed"].items()} == {
        "stock": Status.WRONG_RESULT,
        "other": Status.OK,
    }
    assert all(each.status is Status.OK for key in ("agreed", kernel.key) for each in measured[key].values())
    assert {each.key.hardware for listed in measured.values() for each in listed.values()} == {
        this_machine().hardware.key
    }


def test_a_job_that_a_worker_cannot_read_is_no_fault_of_a_variant(cluster: Processes, tmp_path: Path) -> None:
    with ExitStack() as stack:
        pool = opened(stack, cluster, tmp_path)
        with pytest.raises(CompileError, match="cannot read"):
            list(pool.map_unordered("tests.no_such_module:job", [("a", {})], TIMEOUT, quiet=True))


def test_kinds_of_machines_are_told_apart_and_never_mixed(cluster: Processes, tmp_path: Path) -> None:
    log, other = tmp_path / "log", cluster.worker("unlike", models=[OTHER])
    try:
        wait_until(lambda: len(connected(cluster)) == 3)
        with ExitStack() as stack:
            with pytest.raises(UsageError, match="--tune-for"):
                stack.enter_context(find_cluster(Scheduler.of(cluster.address), TARGET, None))
            found = stack.enter_context(find_cluster(Scheduler.of(cluster.address), TARGET, "nobody has"))
            assert OTHER in found.hardware
            pool = opened(stack, cluster, tmp_path, "nobody has")
            assert [each.status for each in in_batch(pool, log, 4, 0.0)] == [JobStatus.OK] * 4
            assert {worker for _, worker in times(log)} == {str(other.pid)}
    finally:
        kill(other)
    wait_until(lambda: len(connected(cluster)) == 2)


def test_killing_workers_and_the_scheduler_loses_only_what_was_under_way(cluster: Processes, tmp_path: Path) -> None:
    """The last test of this cluster."""
    count, log, arrived = 24, tmp_path / "log", list[int]()
    scheduler, first, second = cluster.started[:3]
    with ExitStack() as stack:
        pool = opened(stack, cluster, tmp_path)
        for done, result in enumerate(in_batch(pool, log, count, 0.3)):
            assert result.status is JobStatus.OK
            arrived.append(result.value)
            if done == 6:
                kill(first)
            if done == 12:
                kill(scheduler)
                cluster.scheduler()
            if done == 16:
                cluster.worker("three")
        assert second.poll() is None
    assert sorted(arrived) == list(range(count))
    repeated = [number for number, _ in times(log)]
    assert len(repeated) - count <= 3, "one for each worker that was lost, or that lost the scheduler"


def test_without_a_scheduler_there_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sartor.tuning.cluster.party._FIND_SECONDS", 1.0)
    monkeypatch.setattr("sartor.tuning.cluster.link._CONNECT_SECONDS", 0.5)
    with pytest.raises(DeviceError, match="no Dask scheduler"), ExitStack() as stack:
        stack.enter_context(find_cluster(Scheduler.of("tcp://127.0.0.1:9"), TARGET, None))
    assert caplog.messages == ["there is no Dask scheduler at tcp://127.0.0.1:9; waiting up to 1 s"]


def test_a_worker_imports_neither_the_compiler_nor_onnx() -> None:
    """What a worker and its processes import, without a plugin for tests."""
    modules = (
        "sartor.cli.runtime_app",
        "sartor.tuning.cluster.server",
        "sartor.tuning.measuring.away",
        "sartor.tuning.networks.profile_job",
        "sartor.tuning.networks.prefixes.timing_job",
        "sartor.tuning.networks.sample_runs",
        "sartor.profiling.layers.dispatch_job",
    )
    code = f"import importlib, sys; [importlib.import_module(each) for each in {modules}]; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert "sartor.tuning.measuring.away" in imported
    assert not imported & {"iree.compiler", "onnx", "onnxruntime", "onnxslim", "networkx", "highspy", "xgboost"}
