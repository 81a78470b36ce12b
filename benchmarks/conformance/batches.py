"""Tests of small models run in batches; a test that does not pass in a batch is run again alone."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from onnx.backend.test.runner import Runner

from benchmarks.conformance.batch_job import Case, run_batch
from benchmarks.conformance.suite import OnnxTest, Outcome, Status, judged, run_test
from sartor.backend import SartorBackend, SartorRep
from sartor.codegen.ir.target import Target
from sartor.errors import SartorError
from sartor.runtime.driver.signature import Array
from sartor.tuning.workers.calls import WorkerError, call, open_pool
from sartor.tuning.workers.pool import WorkerPool

_SIZE = 24
_TIMEOUT = 300.0


def run(tests: Iterable[OnnxTest]) -> Iterator[Outcome]:
    """Run tests in batches, and those without a result again alone; yield outcomes in the tests' order."""
    with open_pool(1) as (pool, _):
        for batch in _batched(tests):
            begin = time.monotonic()
            known = _together([each for each in batch if each.data is not None], pool)
            seconds = round((time.monotonic() - begin) / len(batch), 3)
            for test in batch:
                if test.name in known:
                    yield Outcome(test.name, test.category, *known[test.name], seconds)
                else:
                    yield run_test(test)


def _batched(tests: Iterable[OnnxTest]) -> Iterator[tuple[OnnxTest, ...]]:
    rest = iter(tests)
    while batch := tuple(itertools.islice(rest, _SIZE)):
        yield batch


def _together(tests: list[OnnxTest], pool: WorkerPool) -> dict[str, tuple[Status, str]]:
    """Run tests in one module; return status and message by name, without the tests that must be run alone."""
    with tempfile.TemporaryDirectory() as folder:
        cases = {test.name: case for test in tests if (case := _case(test, Path(folder))) is not None}
        arguments = {"cases": list(cases.values()), "target": Target.create("cpu"), "module": Path(folder, "all.vmfb")}
        try:
            found = call(pool, run_batch, arguments, "running tests together", _TIMEOUT)
        except SartorError:
            return {}
    ends: dict[str, tuple[Status, str]] = {}
    for name, result in zip(cases, found, strict=True):
        if isinstance(result, WorkerError):
            ends[name] = judged(result.error)
    outputs = dict(zip(cases, found, strict=True))
    return ends | {test.name: (Status.PASSED, "") for test in tests if _is_right(test, outputs.get(test.name))}


def _case(test: OnnxTest, folder: Path) -> Case | None:
    if test.data is None:
        return None
    try:
        rep: SartorRep = SartorBackend.prepare(test.data.model)
        bound = rep.bind(test.data.inputs)
    except SartorError:
        return None
    path = folder / f"{test.name}.onnx"
    path.write_bytes(bound.model.SerializeToString())
    return Case(path, bound.shapes, bound.feeds)


def _is_right(test: OnnxTest, outputs: list[Array] | WorkerError | None) -> bool:
    if not isinstance(outputs, list) or test.data is None:
        return False
    data = test.data
    try:
        Runner.assert_similar_outputs(data.outputs, outputs, rtol=data.rtol, atol=data.atol)
    except AssertionError:
        return False
    return True
