"""ONNX's backend test suite, with functions that run its tests through Sartor's backend."""

from __future__ import annotations

import os
import time
import unittest
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any

from onnx import ModelProto, TensorProto, numpy_helper

from sartor.backend import SartorBackend
from sartor.errors import SartorError

CPU, VULKAN = DEVICES = ("cpu", "vulkan")
# Folder in which the suite stores its networks; the suite's default is in the user's home.
_MODELS = Path("build/conformance/models")
_KINDS = {
    "OnnxBackendNodeModelTest": "node",
    "OnnxBackendSimpleModelTest": "simple",
    "OnnxBackendPyTorchOperatorModelTest": "pytorch-operator",
    "OnnxBackendPyTorchConvertedModelTest": "pytorch-converted",
    "OnnxBackendRealModelTest": "light",
}
CATEGORIES = tuple(_KINDS.values())
_ON_EVERY_DEVICE, _EXPANDED = "node", "_expanded"


class Status(StrEnum):
    """Status of a finished test."""

    PASSED = "passed"
    REFUSED = "refused"
    """The model does not compile or run, and the error says why."""
    WRONG = "wrong"
    """An output differs from the expected one in value, type or shape."""
    BROKEN = "broken"
    """The test ended with an error other than Sartor's own."""


@dataclass(frozen=True)
class Outcome:
    """The result of one test.

    Attributes:
        name: name of the test, without its device.
        category: ``node``, ``simple``, ``pytorch-operator``, ``pytorch-converted`` or ``light``.
        status: status of the test.
        message: the error on one line; empty if the test passed.
        seconds: duration in seconds.
    """

    name: str
    category: str
    status: Status
    message: str
    seconds: float


@dataclass(frozen=True)
class Data:
    """A test's model, inputs and expected outputs, if the suite holds them in memory."""

    model: ModelProto
    inputs: list[Any]
    outputs: list[Any]
    rtol: float
    atol: float


@dataclass(frozen=True)
class OnnxTest:
    """One test.

    Attributes:
        name: name without the device.
        category: part of the suite.
        case: the test case that runs it.
        data: its model and data; None unless there is exactly one data set in memory.
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
    """Return all tests for the CPU by name, ordered by category."""
    _MODELS.mkdir(parents=True, exist_ok=True)
    os.environ["ONNX_MODELS"] = str(_MODELS.resolve())
    with warnings.catch_warnings():
        # The suite computes expected outputs while it is loaded, some with overflows or NaN.
        warnings.simplefilter("ignore")
        from onnx.backend.test import BackendTest
        from onnx.backend.test.loader import load_model_tests

        cases = BackendTest(SartorBackend, __name__).test_cases
        data = {test.name: _data(test) for test in load_model_tests(kind="node")}
    found = [
        (name.removesuffix(f"_{CPU}"), kind, cases[kind](name))
        for kind in _KINDS
        for name in unittest.defaultTestLoader.getTestCaseNames(cases[kind])
        if name.endswith(f"_{CPU}")
    ]
    return {name: OnnxTest(name, _KINDS[kind], case, data.get(name)) for name, kind, case in found}


def chosen(tests: Mapping[str, OnnxTest], device: str) -> dict[str, OnnxTest]:
    """Return the tests that are run on a device: all on the CPU, operator tests on others, as the suite has no more.

    Those in which ONNX has expanded the operator are left out there: Sartor expands or lowers it by itself.
    """
    if device == CPU:
        return dict(tests)
    return {name: test for name, test in tests.items() if test.category == _ON_EVERY_DEVICE and _EXPANDED not in name}


def _data(case: Any) -> Data | None:
    if case.model is None or not case.data_sets or len(case.data_sets) != 1:
        return None
    inputs, outputs = ([_array(value) for value in values] for values in case.data_sets[0])
    return Data(case.model, inputs, outputs, case.rtol, case.atol)


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def run_test(test: OnnxTest) -> Outcome:
    """Run one test alone on the CPU."""
    collector, begin = _Collector(), time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        test.case.run(collector)
    status, message = judged(collector.error)
    return Outcome(test.name, test.category, status, message, round(time.monotonic() - begin, 3))


def judged(error: BaseException | None) -> tuple[Status, str]:
    """Return the status of a test that ended with an error or None, and the error on one line."""
    if error is None:
        return Status.PASSED, ""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    if isinstance(error, SartorError):
        return Status.REFUSED, text
    if isinstance(error, AssertionError):
        return Status.WRONG, text
    return Status.BROKEN, f"{text} ({_innermost(error.__traceback__)})"


def _innermost(traceback: TracebackType | None) -> str:
    """Return the file and line that raised an error."""
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return f"{traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}" if traceback else "nowhere"
