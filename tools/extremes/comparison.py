"""Compares Sartor's result with ONNX Runtime's and that of ONNX's own evaluator, either of which may be right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import onnxruntime
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from sartor import backend
from sartor.errors import UnsupportedModelError
from tools.extremes.deviations import Deviation
from tools.extremes.operators import Case
from tools.extremes.results import Results
from tools.extremes.values import Array

_TOLERANCE = {2: 2e-3, 4: 8e-6, 8: 1e-12}
_SMALLEST = 1e-3
"""Errors are relative to the result, or to this where the result is smaller."""
_SHOWN = 4
_REFUSED = (
    *(ort_errors.Fail, ort_errors.InvalidArgument, ort_errors.InvalidGraph, ort_errors.NotImplemented),
    ort_errors.RuntimeException,
)


class Verdict(Enum):
    """How a case ended: explained if deviations cover all that differs, unknown if nothing else computes it."""

    RIGHT = "right"
    EXPLAINED = "explained"
    WRONG = "wrong"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Outcome:
    """How a case ended.

    Attributes:
        verdict: of all elements together.
        details: reasons of a refusal, or of what is explained; operands and results of the first wrong elements.
    """

    verdict: Verdict
    details: tuple[str, ...] = ()


def outcome(case: Case, deviations: Sequence[Deviation] = ()) -> Outcome:
    """Run a case and compare it; results that differ are wrong unless one of the deviations covers them."""
    with np.errstate(all="ignore"):
        expected = dict(expected_results(case))
        try:
            actual = np.asarray(backend.prepare(case.model).run(list(case.feeds.values()))[0])
        except UnsupportedModelError as error:
            return Outcome(Verdict.REFUSED, (str(error),))
        if not expected:
            return Outcome(Verdict.UNKNOWN)
        wrong = ~np.logical_or.reduce([_agree(actual, other) for other in expected.values()])
        if not wrong.any():
            return Outcome(Verdict.RIGHT)
        # Deviations are of values: one of the type or the shape explains nothing.
        is_alike = any(_are_alike(actual, other) for other in expected.values())
        results = Results(tuple(case.feeds.values()), actual)
        covered = [(deviation.reason, wrong & deviation.covers(results)) for deviation in deviations if is_alike]
    left = wrong & ~np.logical_or.reduce([where for _, where in covered]) if covered else wrong
    if left.any():
        lines = (_line(tuple(index), case.feeds, actual, expected) for index in np.argwhere(left)[:_SHOWN])
        return Outcome(Verdict.WRONG, tuple(lines))
    return Outcome(Verdict.EXPLAINED, tuple(reason for reason, where in covered if where.any()))


def expected_results(case: Case) -> Iterator[tuple[str, Array]]:
    """What each of the others that knows a case computes, by its name."""
    with suppress(*_REFUSED):
        session = onnxruntime.InferenceSession(case.model.SerializeToString(), providers=["CPUExecutionProvider"])
        yield "ONNX Runtime", np.asarray(session.run(None, dict(case.feeds))[0])
    # The evaluator refuses what it has no rule for in several ways.
    with suppress(NotImplementedError, RuntimeError, TypeError, ValueError, OverflowError, IndexError, KeyError):
        results: Any = ReferenceEvaluator(case.model).run(None, dict(case.feeds))
        yield "ONNX", np.asarray(results[0])


def _are_alike(actual: Array, other: Array) -> bool:
    return bool(other.dtype == actual.dtype and other.shape == actual.shape)


def _agree(actual: Array, other: Array) -> Array:
    """Where two results are the same."""
    if not _are_alike(actual, other):
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
