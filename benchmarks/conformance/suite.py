"""ONNX's backend test suite, run test by test through Sartor's backend."""

from __future__ import annotations

import os
import time
import unittest
import warnings
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any

from onnx import ModelProto, TensorProto, numpy_helper

from sartor.backend import SartorBackend
from sartor.errors import SartorError

DEVICE = "cpu"
# The suite keeps the networks that it makes inputs for here, and by default in the user's home.
_MODELS = Path("build/conformance/models")
_KINDS = {
    "OnnxBackendNodeModelTest": "node",
    "OnnxBackendSimpleModelTest": "simple",
    "OnnxBackendPyTorchOperatorModelTest": "pytorch-operator",
    "OnnxBackendPyTorchConvertedModelTest": "pytorch-converted",
    "OnnxBackendRealModelTest": "light",
}
CATEGORIES = tuple(_KINDS.values())


class Status(StrEnum):
    """How a test ended."""

    PASSED = "passed"
    REFUSED = "refused"
    """The model does not compile or run, and the error says why."""
    WRONG = "wrong"
    """An output has another value, type or shape than the test wants."""
    BROKEN = "broken"
    """An error that is no answer to a user."""


@dataclass(frozen=True)
class Outcome:
    """One test's end.

    Attributes:
        name: the test's, without its device.
        category: ``node``, ``simple``, ``pytorch-operator``, ``pytorch-converted`` or ``light``.
        status: how it ended.
        message: what was wrong, on one line; empty if it passed.
        seconds: how long it took.
    """

    name: str
    category: str
    status: Status
    message: str
    seconds: float


@dataclass(frozen=True)
class Data:
    """What a test runs and wants, where the suite holds it in memory."""

    model: ModelProto
    inputs: list[Any]
    outputs: list[Any]
    rtol: float
    atol: float


@dataclass(frozen=True)
class OnnxTest:
    """One test.

    Attributes:
        name: without its device.
        category: which part of the suite it is of.
        case: runs it.
        data: what it runs and wants, if there is one set of it.
    """

    name: str
    category: str
    case: unittest.TestCase
    data: Data | None


class _Collector(unittest.TestResult):
    """Keeps the error that ended the last test."""

    error: BaseException | None = None

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        self.error = err[1]

    addFailure = addError

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.error = unittest.SkipTest(reason)


def collect() -> dict[str, OnnxTest]:
    """All tests for the CPU, by name, category by category."""
    _MODELS.mkdir(parents=True, exist_ok=True)
    os.environ["ONNX_MODELS"] = str(_MODELS.resolve())
    with warnings.catch_warnings():
        # The suite computes what it expects, overflows and not-a-number included.
        warnings.simplefilter("ignore")
        from onnx.backend.test import BackendTest
        from onnx.backend.test.loader import load_model_tests

        cases = BackendTest(SartorBackend, __name__).test_cases
        data = {each.name: _data(each) for each in load_model_tests(kind="node")}
    found = [
        (name.removesuffix(f"_{DEVICE}"), kind, cases[kind](name))
        for kind in _KINDS
        for name in unittest.defaultTestLoader.getTestCaseNames(cases[kind])
        if name.endswith(f"_{DEVICE}")
    ]
    return {name: OnnxTest(name, _KINDS[kind], case, data.get(name)) for name, kind, case in found}


def _data(case: Any) -> Data | None:
    if case.model is None or not case.data_sets or len(case.data_sets) != 1:
        return None
    inputs, outputs = ([_array(each) for each in values] for values in case.data_sets[0])
    return Data(case.model, inputs, outputs, case.rtol, case.atol)


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def run_test(test: OnnxTest) -> Outcome:
    """Run one test by itself."""
    collector, begin = _Collector(), time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        test.case.run(collector)
    status, message = judged(collector.error)
    return Outcome(test.name, test.category, status, message, round(time.monotonic() - begin, 3))


def judged(error: BaseException | None) -> tuple[Status, str]:
    """What an error, or none, says of a test, and the error on one line."""
    if error is None:
        return Status.PASSED, ""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    if isinstance(error, SartorError):
        return Status.REFUSED, text
    if isinstance(error, AssertionError):
        return Status.WRONG, text
    return Status.BROKEN, f"{text} ({_innermost(error.__traceback__)})"


def _innermost(traceback: TracebackType | None) -> str:
    """File and line where an error was raised."""
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return f"{traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}" if traceback else "nowhere"
