"""Tests of small models run in batches; a test that does not pass in a batch is run again alone."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from onnx.backend.test.runner import Runner

from benchmarks.conformance.batch_job import Case, run_alone, run_batch
from benchmarks.conformance.suite import CPU, Data, OnnxTest, Outcome, Status, judged, run_test
from sartor.backend import BoundModel, SartorBackend, SartorRep
from sartor.codegen.ir.target import Target
from sartor.errors import SartorError
from sartor.onnx_model.rewrites.control_flow.tensor_interface import Value
from sartor.runtime.driver.signature import Array
from sartor.tuning.workers.calls import call, open_pool
from sartor.tuning.workers.pool import WorkerPool
from sartor.tuning.workers.protocol import WorkerError

_SIZE = 24
_TIMEOUT = 300.0


def run(tests: Iterable[OnnxTest], device: str = CPU) -> Iterator[Outcome]:
    """Run tests in batches, and those without a result again alone; yield outcomes in the tests' order.

    For another device than the CPU the tests must have their data in memory.
    """
    target = Target.create(device)
    with open_pool(1) as (pool, _):
        for batch in _batched(tests):
            begin = time.monotonic()
            known = _together([each for each in batch if each.data is not None], target, pool)
            seconds = round((time.monotonic() - begin) / len(batch), 3)
            for test in batch:
                if test.name in known:
                    yield Outcome(test.name, test.category, *known[test.name], seconds)
                else:
                    yield run_test(test) if _is_for_the_suite(test, device) else _alone(test, target, pool)


def _is_for_the_suite(test: OnnxTest, device: str) -> bool:
    """Whether the suite itself runs a test: it knows no Vulkan, and does not compare how long sequences are."""
    return device == CPU and (test.data is None or not any(isinstance(output, list) for output in test.data.outputs))


def _batched(tests: Iterable[OnnxTest]) -> Iterator[tuple[OnnxTest, ...]]:
    rest = iter(tests)
    while batch := tuple(itertools.islice(rest, _SIZE)):
        yield batch


def _together(tests: list[OnnxTest], target: Target, pool: WorkerPool) -> dict[str, tuple[Status, str]]:
    """Run tests in one module; return status and message by name, without the tests that must be run alone."""
    with tempfile.TemporaryDirectory() as folder:
        bound = {test.name: model for test in tests if (model := bound_or_none(test)) is not None}
        cases = [_case(name, model, Path(folder)) for name, model in bound.items()]
        arguments = {"cases": cases, "target": target, "module": Path(folder, "all.vmfb")}
        try:
            found = dict(zip(bound, call(pool, run_batch, arguments, "running tests together", _TIMEOUT), strict=True))
        except SartorError:
            return {}
    ends = {name: judged(result.error) for name, result in found.items() if isinstance(result, WorkerError)}
    for test in tests:
        outputs = found.get(test.name)
        if isinstance(outputs, list) and _is_right(test, bound[test.name], outputs):
            ends[test.name] = (Status.PASSED, "")
    return ends


def _alone(test: OnnxTest, target: Target, pool: WorkerPool) -> Outcome:
    """Run a test in a worker from beginning to end, because the device's driver may crash."""
    begin, error = time.monotonic(), None
    with tempfile.TemporaryDirectory() as folder:
        try:
            bound = _bound(test)
            case, module = _case(test.name, bound, Path(folder)), Path(folder, "one.vmfb")
            arguments = {"case": case, "target": target, "module": module}
            check_outputs(test, bound, call(pool, run_alone, arguments, "running the test alone", _TIMEOUT))
        except (SartorError, AssertionError) as failure:
            error = failure
    return Outcome(test.name, test.category, *judged(error), round(time.monotonic() - begin, 3))


def bound_or_none(test: OnnxTest) -> BoundModel | None:
    """The model of a test for its inputs, whose data is in memory; None if the backend refuses it."""
    try:
        return _bound(test)
    except SartorError:
        return None


def _bound(test: OnnxTest) -> BoundModel:
    rep: SartorRep = SartorBackend.prepare(_data(test).model)
    return rep.bind(_data(test).inputs)


def _case(name: str, bound: BoundModel, folder: Path) -> Case:
    path = folder / f"{name}.onnx"
    bound.write(path)
    return Case(path, bound.shapes, bound.feeds)


def _is_right(test: OnnxTest, bound: BoundModel, outputs: list[Array]) -> bool:
    try:
        check_outputs(test, bound, outputs)
    except AssertionError:
        return False
    return True


def check_outputs(test: OnnxTest, bound: BoundModel, outputs: list[Array]) -> None:
    """Compare a module's outputs with those that a test expects.

    Raises:
        AssertionError: if they differ.
    """
    data = _data(test)
    expected, actual = _tensors(data.outputs), _tensors(bound.packed(outputs))
    assert list(actual) == list(expected), f"{list(actual)} instead of {list(expected)}"
    Runner.assert_similar_outputs(list(expected.values()), list(actual.values()), rtol=data.rtol, atol=data.atol)


def _tensors(values: Sequence[Value]) -> dict[str, Array]:
    """The tensors of which outputs consist, by their place: the suite does not compare how long sequences are."""
    found: dict[str, Array] = {}
    for number, value in enumerate(values):
        if isinstance(value, list):
            found |= {f"{number}/{index} of {len(value)}": each for index, each in enumerate(value)}
        elif value is not None:
            found[str(number)] = value
    return found


def _data(test: OnnxTest) -> Data:
    if test.data is None:
        raise ValueError(f"the data of {test.name} is not in memory")
    return test.data
