"""Operator tests of ONNX once more, with all dimensions of all inputs open, each compiled for any size."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from onnx import ModelProto, helper

from benchmarks.conformance.batches import bound_or_none, check_outputs
from benchmarks.conformance.opened_job import run_opened, symbols_of, taken_symbols
from benchmarks.conformance.suite import OnnxTest, Outcome, Status, judged
from sartor.backend import BoundModel
from sartor.errors import SartorError, UnsupportedModelError
from sartor.onnx_model.rewrites.number_types.carried_types import CARRIERS, carry_types
from sartor.runtime.driver.signature import Array
from sartor.tuning.workers.calls import call, open_pool
from sartor.tuning.workers.pool import WorkerPool

_TIMEOUT = 120.0
FIXED = "where ONNX's evaluator takes no other sizes, these are as they are:"
"""Before the sizes with which a test has passed that the operator's attributes or constants fix."""
_ALL_FIXED = "the operator's attributes or constants fix all sizes: ONNX's evaluator takes no other"
_REASONS = (
    (_ALL_FIXED, "the operator's attributes or constants fix all sizes"),
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
    begin, error, fixed = time.monotonic(), None, ""
    with tempfile.TemporaryDirectory() as folder:
        try:
            bound = bound_or_none(test)
            if bound is None:
                raise ValueError(f"{test.name} has no model of tensors")
            path = Path(folder, f"{test.name}.onnx")
            forget_sizes(bound)
            symbols, every = taken_symbols(bound.model, bound.feeds), symbols_of(bound.feeds)
            if not symbols:
                raise UnsupportedModelError(_ALL_FIXED)
            fixed = ", ".join(symbol.name[1:] for symbol in every if symbol not in symbols)
            types = {value.name: value.type.tensor_type.elem_type for value in bound.model.graph.output}
            carry_types(bound.model)
            forget_sizes(bound).write(path)
            feeds = {name: _stored(array) for name, array in bound.feeds.items()}
            job = {"model": path, "feeds": feeds, "symbols": symbols, "module": Path(folder, "open.vmfb")}
            results = call(pool, run_opened, job, "running the test at any size", _TIMEOUT)
            outputs = [_declared(array, kind) for array, kind in zip(results, types.values(), strict=True)]
            check_outputs(test, bound, outputs)
        except (SartorError, AssertionError) as failure:
            error = failure
    status, message = judged(error)
    message = f"{FIXED} {fixed}" if status is Status.PASSED and fixed else message
    return Outcome(test.name, test.category, status, message, round(time.monotonic() - begin, 3))


def _stored(array: Array) -> Array:
    """An input as it is passed in, in a type that carries its own."""
    carrier = CARRIERS.get(helper.np_dtype_to_tensor_dtype(array.dtype))
    return array if carrier is None else array.view(helper.tensor_dtype_to_np_dtype(carrier.stored))


def _declared(array: Array, kind: int) -> Array:
    """An output in its own type."""
    return array.view(helper.tensor_dtype_to_np_dtype(kind)) if kind in CARRIERS else array


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
    passed, fixed = counts[Status.PASSED], sum(outcome.message.startswith(FIXED) for outcome in listed)
    return [
        f"{len(listed)} operator tests with all dimensions open: {passed} passed, {fixed} of them with sizes "
        f"that the operator fixes, {counts[Status.REFUSED]} refused, {counts[Status.WRONG]} wrong, "
        f"{counts[Status.BROKEN]} broken",
        *(f"{count:5} refused: {reason}" for reason, count in reasons.most_common()),
    ]


def _reason(message: str) -> str:
    return next((reason for part, reason in _REASONS if part in message), message[:120])
