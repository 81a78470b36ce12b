"""Measures of the error of a model's outputs: a number per sample, and one for all samples."""

from __future__ import annotations

import hashlib
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache, partial
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sartor.errors import UsageError
from sartor.runtime.driver.signature import Array
from sartor.runtime.output_error import FloatArray, output_scale, relative_error, scaled_differences
from sartor.tuning.errors.token_error import logits_among, token_error

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

Measure = Callable[[Array, Array, Array | None], float]
"""Takes an output, the expected output and its scale; returns the error."""

_SEPARATOR = ":"
_VERSION = 3
# An output without classes counts as another decision if it is off by more than this fraction of its scale.
_OTHER_DECISION = 0.1
_EXACT_KINDS = "biu"
# The user's code runs once for each sample and plan: a call that takes longer would take hours in all, or for ever.
_MOST_SECONDS = 60.0


class MeasureKind(StrEnum):
    """The measures by the names that users give; USER is a function in the user's file."""

    RELATIVE = "relative"
    COSINE = "cosine"
    TOP1 = "top1"
    TOKENS = "tokens"
    USER = "user"


# Measures whose samples are averaged. For the others the worst sample counts.
_AVERAGED = frozenset({MeasureKind.TOP1, MeasureKind.TOKENS, MeasureKind.USER})


@dataclass(frozen=True)
class ErrorMeasure:
    """A measure of error. It can be pickled, and loads the user's file in the process that uses it.

    Attributes:
        kind: which measure.
        path: the user's Python file; None for other kinds.
        function: the name of the function in that file.
    """

    kind: MeasureKind
    path: Path | None = None
    function: str = ""

    @staticmethod
    def parse(text: str) -> ErrorMeasure:
        """Read ``relative``, ``cosine``, ``top1``, ``tokens`` or ``FILE.py:function``; the file is run.

        Raises:
            UsageError: if the text is none of these, or there is no such function.
        """
        kinds = [kind for kind in MeasureKind if kind is not MeasureKind.USER]
        if text in kinds:
            return ErrorMeasure(MeasureKind(text))
        path, separator, function = text.rpartition(_SEPARATOR)
        if not separator or not function.isidentifier() or "\0" in path:
            raise UsageError(f"{text!r} is no error measure; give {', '.join(kinds)} or FILE.py:function")
        measure = ErrorMeasure(MeasureKind.USER, Path(os.path.realpath(path)), function)
        _load(measure)
        return measure

    def __str__(self) -> str:
        return f"{self.path}{_SEPARATOR}{self.function}" if self.kind is MeasureKind.USER else self.kind.value

    @property
    def identity(self) -> str:
        """Text that identifies the measure; it includes a hash of the user's file.

        Raises:
            UsageError: if that file cannot be read.
        """
        if self.path is None:
            return f"{self.kind.value} {_VERSION}"
        try:
            return f"{self} {hashlib.sha256(self.path.read_bytes()).hexdigest()}"
        except OSError as error:
            raise UsageError(f"'{self.path}' cannot be read: {error.strerror}") from None

    def of_sample(
        self,
        outputs: Sequence[Array],
        expected: Sequence[Array],
        scales: Sequence[Array] = (),
        names: Sequence[str] = (),
    ) -> float:
        """The error of one sample, that of its worst output; 0 if all outputs are as expected.

        For ``tokens`` that is ``TokenError.error`` of the logits, and the cosine distance of other outputs.

        Args:
            outputs: of the module.
            expected: the right outputs.
            scales: of the outputs, as ``scales_of`` computes them; if empty, scales without noise are computed here.
            names: of the outputs, by which ``tokens`` finds the logits; if empty, by their shapes.

        Raises:
            UsageError: if the user's function fails, takes too long, or returns no number of 0 or more, or if
                ``tokens`` finds no logits.
        """
        if self.kind is MeasureKind.USER:
            return _call(self, outputs, expected)
        if len(outputs) != len(expected):
            return math.inf
        known: Sequence[Array | None] = scales or [None] * len(outputs)
        measures = [_MEASURES[self.kind]] * len(outputs)
        if self.kind is MeasureKind.TOKENS:
            measures[logits_among(expected, names)] = _of_tokens
        pairs = zip(measures, zip(outputs, expected, known, strict=True), strict=True)
        return max((measure(*compared) for measure, compared in pairs), default=0.0)

    def of_samples(self, errors: Sequence[float]) -> float:
        """The error of several samples: their largest error, or the mean for top-1, tokens and the user's function."""
        if not errors:
            return 0.0
        return math.fsum(errors) / len(errors) if self.kind in _AVERAGED else max(errors)


def cosine_distance(output: Array, expected: Array, scale: Array | None = None) -> float:
    """The distance of an output from the expected one as vectors, in direction and length.

    For vectors x and y of lengths a and b with the angle t between them, it is |x - y|^2 / (|x|^2 + |y|^2), which is
    1 - 2 a b cos(t) / (a^2 + b^2). For vectors of one length that is 1 - cos(t); it approaches 1 if one vector is much
    longer than the other. Values are divided by their scales first. The distance of two zero vectors is 0. It is
    infinite if the shapes differ, or if a value is finite in one of them only.
    """
    if output.shape != expected.shape:
        return math.inf
    if expected.dtype.kind in _EXACT_KINDS:
        output, expected = output.astype(np.float64), expected.astype(np.float64)
    apart = scaled_differences(output, expected, np.ones(()))
    finite = np.isfinite(expected.astype(np.float64))
    if np.isinf(apart).any() or not apart.any():
        return math.inf if np.isinf(apart).any() else 0.0
    with np.errstate(over="ignore"):
        scaled = [
            outputs[finite].astype(np.float64) / _scale(expected, scale)[finite] for outputs in (output, expected)
        ]
    # Scaled to 1, so that squares do not leave the range of float64.
    largest = max(float(np.max(np.abs(values), initial=0.0)) for values in scaled)
    if math.isinf(largest):
        return 1.0
    own, right = (values / largest for values in scaled)
    return _squares(own - right) / (_squares(own) + _squares(right))


def _scale(expected: Array, scale: Array | None) -> Array:
    return output_scale(expected) if scale is None else np.broadcast_to(scale, expected.shape)


def _squares(values: FloatArray) -> float:
    return float(values @ values)


def top1_disagreement(output: Array, expected: Array, scale: Array | None = None) -> float:
    """The fraction of rows whose largest element has another index, along the last axis with more than one element.

    The first of several axes is the batch and is never compared along. An output without such an axis, [N, 1], has no
    classes: the result is the fraction of elements that are off by more than a tenth of their scale. For integers,
    which may be classes, it is the fraction that differs. It is 1 for other shapes; a row with other NaNs differs.
    """
    if output.shape != expected.shape:
        return 1.0
    if expected.size == 0:
        return 0.0
    if expected.dtype.kind in _EXACT_KINDS:
        return float(np.mean(output != expected))
    axes = [axis for axis, size in enumerate(expected.shape) if size > 1 and (axis or expected.ndim == 1)]
    if not axes:
        return float(np.mean(scaled_differences(output, expected, scale) > _OTHER_DECISION))
    missing = np.isnan(output) != np.isnan(expected)
    own, right = (np.where(np.isnan(values), -np.inf, values) for values in (output, expected))
    differs = np.argmax(own, axis=axes[-1]) != np.argmax(right, axis=axes[-1])
    return float(np.mean(differs | missing.any(axis=axes[-1])))


def _relative(output: Array, expected: Array, scale: Array | None) -> float:
    return relative_error([output], [expected], scales=[] if scale is None else [scale])


def _of_tokens(output: Array, expected: Array, scale: Array | None) -> float:
    del scale
    return token_error(output, expected).error


# Other outputs of a decoder than its logits are compared by the cosine distance.
_MEASURES: dict[MeasureKind, Measure] = {
    MeasureKind.RELATIVE: _relative,
    MeasureKind.COSINE: cosine_distance,
    MeasureKind.TOP1: top1_disagreement,
    MeasureKind.TOKENS: cosine_distance,
}


RELATIVE = ErrorMeasure(MeasureKind.RELATIVE)
"""The default measure of error."""


class _Outcome:
    """The boundary at which whatever the user's code does becomes a value or an error."""

    def __init__(self) -> None:
        self.value: Any = None
        self.error: BaseException | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        self.error = error
        return True


def _run_user_code(what: str, run: Callable[[], Any]) -> Any:
    """The value of the user's code, which may fail, end the thread that it runs in, or never return.

    Raises:
        UsageError: naming the code.
    """
    outcome = _Outcome()

    def body() -> None:
        with outcome:
            outcome.value = run()

    # A thread cannot be ended, but it does not keep the process from ending either.
    thread = threading.Thread(target=body, name="error-measure", daemon=True)
    thread.start()
    thread.join(_MOST_SECONDS)
    if thread.is_alive():
        raise UsageError(f"{what} has not returned after {_MOST_SECONDS:g} s, which is the longest that it may take")
    if isinstance(outcome.error, UsageError):
        raise outcome.error
    if outcome.error is not None:
        raise UsageError(f"{what} failed: {type(outcome.error).__name__}: {outcome.error}")
    return outcome.value


class _LeavesNothing(SourceFileLoader):
    """Loads a file of the user's, and writes no bytecode beside it."""

    def set_data(self, path: str, data: ReadableBuffer, *, _mode: int = 0o666) -> None:
        """Keep nothing."""


@contextmanager
def _beside(path: Path) -> Iterator[None]:
    """While a user's file is run it may import files beside it, which leave no bytecode there either.

    Their folder comes last, so that they take the place of nothing that Sartor imports meanwhile.
    """
    folder, writes_nothing = str(path.parent), sys.dont_write_bytecode
    sys.path.append(folder)
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = writes_nothing
        # The last one: the folder may have been there before.
        if folder in sys.path:
            del sys.path[len(sys.path) - 1 - sys.path[::-1].index(folder)]


@lru_cache(maxsize=8)
def _load(measure: ErrorMeasure) -> Callable[..., Any]:
    path = measure.path or Path()
    if not path.exists():
        raise UsageError(f"'{path}' is not there; a file with a function '{measure.function}' was expected")
    if path.suffix != ".py" or not path.is_file():
        raise UsageError(f"'{path}' is not a Python file; a file with a function '{measure.function}' was expected")
    name = f"sartor_measure_{path.stem}_{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}"
    loader = _LeavesNothing(name, str(path))
    module = module_from_spec(ModuleSpec(name, loader, origin=str(path)))
    module.__file__ = str(path)
    with ExitStack() as undone:
        # Dataclasses and what is pickled look up the module that they are of.
        sys.modules[name] = module
        undone.callback(sys.modules.pop, name, None)
        _run_user_code(f"'{path}'", partial(_beside(path)(loader.exec_module), module))
        function = getattr(module, measure.function, None)
        if not callable(function):
            raise UsageError(f"'{path}' has no function '{measure.function}'")
        undone.pop_all()
    guarded: Callable[..., Any] = _beside(path)(function)
    return guarded


def _call(measure: ErrorMeasure, outputs: Sequence[Array], expected: Sequence[Array]) -> float:
    function, what = _load(measure), f"the error measure '{measure}'"
    error: float = _run_user_code(what, lambda: float(function(list(outputs), list(expected))))
    if math.isnan(error):
        raise UsageError(f"{what} returned not a number, a float of 0 or more was expected")
    if error < 0:
        raise UsageError(f"{what} returned {error:g}, 0 or more was expected: 0 for outputs that are as expected")
    return error
