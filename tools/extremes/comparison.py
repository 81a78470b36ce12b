"""Compares Sartor's result with ONNX Runtime's and that of ONNX's own evaluator, either of which may be right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from sartor import backend
from sartor.errors import UnsupportedModelError
from tools.extremes.operators import Case
from tools.extremes.values import Array

_TOLERANCE = {2: 2e-3, 4: 8e-6, 8: 1e-12}
_SMALLEST = 1e-3
"""Errors are relative to the result, or to this where the result is smaller."""
_SHOWN = 4
_REFUSED = (
    *(ort_errors.Fail, ort_errors.InvalidArgument, ort_errors.InvalidGraph, ort_errors.NotImplemented),
    ort_errors.RuntimeException,
)


@dataclass(frozen=True)
class Outcome:
    """How a case ended.

    Attributes:
        verdict: ``right``, ``refused``, ``wrong``, or ``unknown`` if nothing else computes it.
        details: the reason of a refusal; operands and results of the first wrong elements.
    """

    verdict: str
    details: tuple[str, ...] = ()


def outcome(case: Case) -> Outcome:
    """Run a case and compare it."""
    with np.errstate(all="ignore"):
        expected = dict(_expected(case))
        try:
            actual = np.asarray(backend.prepare(case.model).run(list(case.feeds.values()))[0])
        except UnsupportedModelError as error:
            return Outcome("refused", (str(error),))
        if not expected:
            return Outcome("unknown")
        right = np.logical_or.reduce([_agree(actual, other) for other in expected.values()])
    if right.all():
        return Outcome("right")
    wrong = [tuple(index) for index in np.argwhere(~right)[:_SHOWN]]
    return Outcome("wrong", tuple(_line(index, case.feeds, actual, expected) for index in wrong))


def _expected(case: Case) -> Iterator[tuple[str, Array]]:
    with suppress(*_REFUSED):
        session = onnxruntime.InferenceSession(case.model.SerializeToString(), providers=["CPUExecutionProvider"])
        yield "ONNX Runtime", np.asarray(session.run(None, dict(case.feeds))[0])
    # The evaluator refuses what it has no rule for in several ways.
    with suppress(NotImplementedError, RuntimeError, TypeError, ValueError, OverflowError):
        results: Any = ReferenceEvaluator(case.model).run(None, dict(case.feeds))
        yield "ONNX", np.asarray(results[0])


def _agree(actual: Array, other: Array) -> Array:
    """Where two results are the same."""
    if other.dtype != actual.dtype or other.shape != actual.shape:
        return np.zeros(actual.shape, bool)
    if actual.dtype.kind != "f":
        return np.asarray(actual == other)
    first, second = actual.astype(np.float64), other.astype(np.float64)
    bound = _TOLERANCE[actual.itemsize] * np.maximum(np.abs(second), _SMALLEST)
    same = (first == second) | (np.isnan(first) & np.isnan(second)) | (np.abs(first - second) <= bound)
    return np.asarray(same)


def _line(index: tuple[int, ...], feeds: Mapping[str, Array], actual: Array, expected: Mapping[str, Array]) -> str:
    operands = [value[index] if value.shape == actual.shape else value[index[0]] for value in feeds.values()]
    others = ", ".join(
        f"{name} {other[index] if other.shape == actual.shape else other.shape}" for name, other in expected.items()
    )
    return f"of {' and '.join(map(str, operands))}: {actual[index]}; {others}"
