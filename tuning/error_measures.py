"""How wrong a model's outputs are: a number per sample, and one for all samples."""

from __future__ import annotations

import hashlib
import importlib.util
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from sartor.errors import UsageError
from sartor.runtime.reference import relative_error
from sartor.runtime.signature import Array

Measure = Callable[[Sequence[Array], Sequence[Array]], float]
"""From a sample's outputs and the expected ones, in the model's order, to an error."""

_SEPARATOR = ":"


class MeasureKind(StrEnum):
    """The measures by the names that users give them; USER is a function of their own."""

    RELATIVE = "relative"
    COSINE = "cosine"
    TOP1 = "top1"
    USER = "user"


# What averages: of the others the worst sample counts.
_AVERAGED = frozenset({MeasureKind.TOP1, MeasureKind.USER})


@dataclass(frozen=True)
class ErrorMeasure:
    """A measure of error; it can be pickled, and loads the user's file where it is used.

    Attributes:
        kind: which.
        path: the user's Python file.
        function: the name of the function in it.
    """

    kind: MeasureKind
    path: Path | None = None
    function: str = ""

    @staticmethod
    def parse(text: str) -> ErrorMeasure:
        """Read ``relative``, ``cosine``, ``top1`` or ``FILE.py:function``; the file is run.

        Raises:
            UsageError: if it is none of these, or there is no such function.
        """
        kinds = [kind for kind in MeasureKind if kind is not MeasureKind.USER]
        if text in kinds:
            return ErrorMeasure(MeasureKind(text))
        path, separator, function = text.rpartition(_SEPARATOR)
        if not separator or not function.isidentifier():
            raise UsageError(f"'{text}' is no error measure; give {', '.join(kinds)} or FILE.py:function")
        measure = ErrorMeasure(MeasureKind.USER, Path(path).resolve(), function)
        _load(measure)
        return measure

    def __str__(self) -> str:
        return f"{self.path}{_SEPARATOR}{self.function}" if self.kind is MeasureKind.USER else self.kind.value

    @property
    def identity(self) -> str:
        """Text that is another one for another measure, also if a user's file has changed.

        Raises:
            UsageError: if that file is gone.
        """
        if self.path is None:
            return self.kind.value
        try:
            return f"{self} {hashlib.sha256(self.path.read_bytes()).hexdigest()}"
        except OSError as error:
            raise UsageError(f"'{self.path}' cannot be read: {error.strerror}") from None

    def of_sample(self, outputs: Sequence[Array], expected: Sequence[Array], floors: Sequence[float] = ()) -> float:
        """The error of one sample's outputs, 0 if they are as expected; ``floors`` as for ``relative_error``.

        Raises:
            UsageError: if the user's function fails, or returns no number.
        """
        if self.kind is MeasureKind.USER:
            return _call(self, outputs, expected)
        if self.kind is MeasureKind.RELATIVE:
            return relative_error(outputs, expected, floors=floors)
        return _MEASURES[self.kind](outputs, expected)

    def of_samples(self, errors: Sequence[float]) -> float:
        """The error of several samples: the largest, or the mean of what top-1 or the user's function gave."""
        if not errors:
            return 0.0
        return math.fsum(errors) / len(errors) if self.kind in _AVERAGED else max(errors)


def cosine_distance(outputs: Sequence[Array], expected: Sequence[Array]) -> float:
    """One minus the cosine of the angle between an output and the expected one as vectors; the largest of all outputs.

    Two zero vectors are equal (0), one is as far as can be without pointing backwards (1). Another shape, or a
    value that is not finite, is infinitely far.
    """
    if len(outputs) != len(expected):
        return math.inf
    return max((_cosine(*pair) for pair in zip(outputs, expected, strict=True)), default=0.0)


def _cosine(output: Array, expected: Array) -> float:
    if output.shape != expected.shape:
        return math.inf
    one, other = (array.astype(np.float64).reshape(-1) for array in (output, expected))
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        return math.inf
    # Scaled to 1, so that squares of very large or small values do not leave the range of float64.
    lengths = [float(np.max(np.abs(each), initial=0.0)) for each in (one, other)]
    if 0.0 in lengths:
        return float(lengths[0] != lengths[1])
    one, other = one / lengths[0], other / lengths[1]
    cosine = float(one @ other) / math.sqrt(float(one @ one) * float(other @ other))
    return max(0.0, 1.0 - cosine)


def top1_disagreement(outputs: Sequence[Array], expected: Sequence[Array]) -> float:
    """The share of rows along the last axis whose largest element is at another place; the largest of all outputs.

    Of integers, which may be classes already, the share that differs. Another shape, or NaN, agrees with nothing.
    """
    if len(outputs) != len(expected):
        return 1.0
    return max((_disagreement(*pair) for pair in zip(outputs, expected, strict=True)), default=0.0)


def _disagreement(output: Array, expected: Array) -> float:
    if output.shape != expected.shape:
        return 1.0
    if expected.size == 0:
        return 0.0
    if expected.dtype.kind in "biu":
        return float(np.mean(output != expected))
    one, other = (np.atleast_1d(array) for array in (output, expected))
    differs = np.argmax(one, axis=-1) != np.argmax(other, axis=-1)
    return float(np.mean(differs | np.isnan(one).any(axis=-1)))


_MEASURES: dict[MeasureKind, Measure] = {
    MeasureKind.COSINE: cosine_distance,
    MeasureKind.TOP1: top1_disagreement,
}


RELATIVE = ErrorMeasure(MeasureKind.RELATIVE)
"""What errors are measured by unless the user says otherwise."""


class _UserCode:
    """The boundary at which whatever the user's code raises becomes an error that names it."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, UsageError):
            raise UsageError(f"{self._what} failed: {type(error).__name__}: {error}") from None


@lru_cache(maxsize=8)
def _load(measure: ErrorMeasure) -> Callable[..., Any]:
    path = measure.path or Path()
    spec = importlib.util.spec_from_file_location(f"sartor_measure_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UsageError(f"'{path}' is no Python file, one with a function '{measure.function}' was expected")
    module = importlib.util.module_from_spec(spec)
    with _UserCode(f"'{path}'"):
        spec.loader.exec_module(module)
    function = getattr(module, measure.function, None)
    if not callable(function):
        raise UsageError(f"'{path}' has no function '{measure.function}'")
    found: Callable[..., Any] = function
    return found


def _call(measure: ErrorMeasure, outputs: Sequence[Array], expected: Sequence[Array]) -> float:
    function = _load(measure)
    with _UserCode(f"the error measure '{measure}'"):
        error = float(function(list(outputs), list(expected)))
    if math.isnan(error):
        raise UsageError(f"the error measure '{measure}' returned not a number, a float was expected")
    return error
