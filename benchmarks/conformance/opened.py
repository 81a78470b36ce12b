"""Operator tests of ONNX once more, with all dimensions of all inputs open, each compiled for any size."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from onnx import ModelProto

from benchmarks.conformance.batches import bound_or_none, check_outputs
from benchmarks.conformance.opened_job import run_opened, symbols_of
from benchmarks.conformance.suite import OnnxTest, Outcome, Status, judged
from sartor.backend import BoundModel
from sartor.errors import SartorError
from sartor.tuning.workers.calls import call, open_pool
from sartor.tuning.workers.pool import WorkerPool

_TIMEOUT = 120.0
_REASONS = (
    ("which IREE", "an element type that only the backend carries"),
    ("cannot be compiled for any size", "code, or a constant, that follows from sizes in another way"),
    ("cannot have any size", "code, or a constant, that follows from sizes in another way"),
    ("constant that depends on sizes", "code, or a constant, that follows from sizes in another way"),
    ("contradicts the types or shapes", "the operator's attributes or constants fix a size"),
    ("is not valid", "the operator's attributes or constants fix a size"),
    ("export the model again", "the operator's attributes or constants fix a size"),
    ("computes nothing", "it gives an input as it is"),
    ("gives what it takes", "it gives an input as it is"),
    ("random", "what it draws at random only a manifest tells sessions"),
    ("overlap within the same buffer", "IREE's own code of open sizes fails"),
    ("crashed", "IREE's own code of open sizes fails"),
    ("MLIRError", "IREE's own code of open sizes fails"),
)


def chosen(tests: Mapping[str, OnnxTest]) -> dict[str, OnnxTest]:
    """Operator tests with an input that has a size above one, in ONNX's own form."""
    return {name: test for name, test in tests.items() if _is_open(test)}


def _is_open(test: OnnxTest) -> bool:
    if test.data is None or "_expanded" in test.name or not all(hasattr(each, "shape") for each in test.data.inputs):
        return False
    bound = bound_or_none(test)
    return bound is not None and bound.outputs is None and bool(symbols_of(bound.feeds))


def run(tests: Iterable[OnnxTest]) -> Iterator[Outcome]:
    """Run tests one by one, in a worker."""
    with open_pool(1) as (pool, _):
        for test in tests:
            yield _outcome(test, pool)


def _outcome(test: OnnxTest, pool: WorkerPool) -> Outcome:
    begin, error = time.monotonic(), None
    with tempfile.TemporaryDirectory() as folder:
        try:
            bound = bound_or_none(test)
            if bound is None:
                raise ValueError(f"{test.name} has no model of tensors")
            path = Path(folder, f"{test.name}.onnx")
            forget_sizes(bound).write(path)
            job = {"model": path, "feeds": bound.feeds, "module": Path(folder, "open.vmfb")}
            check_outputs(test, bound, call(pool, run_opened, job, "running the test at any size", _TIMEOUT))
        except (SartorError, AssertionError) as failure:
            error = failure
    return Outcome(test.name, test.category, *judged(error), round(time.monotonic() - begin, 3))


def forget_sizes(bound: BoundModel) -> BoundModel:
    """The model without sizes of inputs and outputs, in place."""
    model: ModelProto = bound.model
    del model.graph.value_info[:]
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    return bound


def summary(outcomes: Iterable[Outcome]) -> list[str]:
    """Lines that count the outcomes, and what refused tests are refused for."""
    listed = list(outcomes)
    counts = Counter(outcome.status for outcome in listed)
    reasons = Counter(_reason(outcome.message) for outcome in listed if outcome.status is Status.REFUSED)
    passed = counts[Status.PASSED]
    return [
        f"{len(listed)} operator tests with all dimensions open: {passed} passed, {counts[Status.REFUSED]} refused, "
        f"{counts[Status.WRONG]} wrong, {counts[Status.BROKEN]} broken",
        *(f"{count:5} refused: {reason}" for reason, count in reasons.most_common()),
    ]


def _reason(message: str) -> str:
    return next((reason for part, reason in _REASONS if part in message), message[:120])
