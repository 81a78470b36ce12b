"""Checks a module that computes a length itself, on calls of several sizes in a row, beside the user's model.

Where a number is rounded that is nearly a tie, either length is right, and all that follows differs: by such samples
nothing is told, and others take their place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path

import numpy as np

from sartor.codegen.ir.sizes.dims import Extent, Symbol, symbols_in
from sartor.errors import DeviceError
from sartor.frontend.kept_import import HashedImport
from sartor.onnx_model.dynamic.cut_length import LENGTH, ROUNDED
from sartor.open_sizes.computed_lengths import LengthModel
from sartor.open_sizes.sized_nets import SizedNets
from sartor.profiling.builder import Build, Builder
from sartor.profiling.compilation.bench import Bench
from sartor.profiling.state_check import MOST_SAMPLES, CallErrors, checked_in_session
from sartor.profiling.verify_job import Check, where_of
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.bound_input import bound_feeds
from sartor.runtime.driver.signature import Array
from sartor.runtime.output_error import LAYER, output_scale
from sartor.runtime.session import Session
from sartor.tuning.errors.error_budget import ErrorBudget
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.workers.protocol import WorkerError

# Parts of the octaves of other sizes, in an order in which each call has another length than that before it.
_PARTS = (0.5, 1.0, 0.25, 0.75, 0.0, 0.6, 0.9, 0.4)
_WANTED, _TRIES, _LEAST = 6, 24, 2
# So near to a tie either side is right.
_TIED = 1e-5


@dataclass(frozen=True)
class LengthRunner:
    """Judges files that compute a length.

    Attributes:
        length: the model.
        judge: judged the same plan where callers give the length.
        run: that it judged.
        builder: compiles files that compute the length.
    """

    length: LengthModel
    judge: SizedNets
    run: NetRun
    builder: Builder

    @staticmethod
    def of(length: LengthModel, judge: SizedNets, run: NetRun, bench: Bench) -> LengthRunner:
        """The runner of a plan's files; arguments are those of the class, but ``bench``, what plans are made with."""
        folder = bench.directory / "computing"
        folder.mkdir(exist_ok=True)
        known = judge.builder
        imported = replace(known.imported, computed=length.computed)
        builder = Builder(imported, known.pool, folder, known.header, known.progress, known.kept, known.code)
        return LengthRunner(length, judge, run, builder)

    @property
    def budget(self) -> ErrorBudget:
        """The bound on the error."""
        return self.judge.budget

    def judged(self, build: Build) -> NetRun:
        """The judged run of calls beside the user's model."""
        file = self.length.file
        job = {"models": (file.source, file.alone), "length": file.cut.symbol, "node": file.cut.node}
        return self.judge.judged_calls(build, self.run, verify_lengths, job)

    def keep(self, hashed: HashedImport) -> None:
        """Keep nothing: what was imported is kept by those whose callers give the length."""


@dataclass(frozen=True)
class LengthErrors(CallErrors):
    """The errors of calls that compute a length."""

    @property
    def sentence(self) -> str:
        """Which call the largest error is of."""
        return f"it is that of call {self.worst + 1} beside the whole model, which computes a length"


def verify_lengths(check: Check, models: tuple[Path, Path], length: str, node: str) -> CallErrors | WorkerError:
    """Worker side: run a module on inputs of several sizes, one after another, and compare all outputs.

    Args:
        check: what is run; its values are those of the model whose callers give the length.
        models: the user's, and what computes its length alone.
        length: name of the length's symbol.
        node: what computes it, as messages name it.

    Raises:
        DeviceError: if the module does not run, or no sample tells anything.
    """
    return checked_in_session(check, lambda session: _Calls(check, models, length, node).errors(session))


class _Calls:
    def __init__(self, check: Check, models: tuple[Path, Path], length: str, node: str) -> None:
        outputs = tuple(value for value in check.values[1] if value.name != LENGTH)
        self._check, self._node = replace(check, values=(check.values[0], outputs)), node
        self._dims = {value.name: value.type.dims or value.type.shape for value in check.values[0]}
        symbols = symbols_in(dim for dims in self._dims.values() for dim in dims)
        self._length: Symbol = next(symbol for symbol in symbols if symbol.name == length)
        self._others = [symbol for symbol in symbols if symbol != self._length]
        self._whole, self._alone = (ReferenceModel(model, threads=check.threads) for model in models)
        self._bound = bound_feeds(check.bound)

    def errors(self, session: Session) -> LengthErrors:
        """The errors of calls whose length tells something."""
        errors, where, beyond = list[float](), list[str](), 0
        names = [output.name for output in session.get_outputs()]
        for feeds in islice(self._feeds(), _TRIES):
            told = _run(self._alone, {**self._bound, **feeds})
            if not self._length.allows(int(told[LENGTH].item())):
                beyond += 1
                continue
            if any(_is_tied(array) for name, array in told.items() if name.startswith(ROUNDED)):
                continue
            right = _run(self._whole, {**self._bound, **feeds})
            given, expected = session.run(None, feeds), [right[name] for name in names]
            scales = [output_scale(output, lenience=LAYER) for output in expected]
            errors.append(self._check.measure.of_sample(given, expected, scales, names))
            where.append(where_of(self._check, given, expected, scales))
            if len(errors) == _WANTED:
                break
        if len(errors) < _LEAST:
            reason = f"{beyond} of {_TRIES} have another length than {self._length}, others are nearly tied"
            raise DeviceError(
                f"samples do not tell whether the length of {self._node} is right: {reason}; give samples of what the "
                "network will see with --calibration, or another bound"
            )
        return LengthErrors(tuple(errors), tuple(where), len(errors))

    def _feeds(self) -> Iterator[Mapping[str, Array]]:
        """Inputs of several sizes."""
        samples = list(islice(self._check.samples.since(0), MOST_SAMPLES))
        parts = cycle(_PARTS)
        for number in range(_TRIES):
            part = next(parts)
            # Texts that are too long become shorter.
            share = part / (1 + number // len(_PARTS))
            sizes = {symbol.name: symbol.at_part(share) for symbol in self._others}
            sample = samples[number % len(samples)]
            names = [name for name in sample if name in self._whole.input_names]
            yield {name: self._cut(sample[name], self._dims[name], sizes) for name in names}

    def _cut(self, array: Array, dims: Sequence[int | Extent], sizes: Mapping[str, int]) -> Array:
        """The beginning of an input; along the length all of it, as callers do not know more."""
        cuts = tuple(
            slice(dim.at(sizes)) if isinstance(dim, Extent) and self._length not in dim.symbols else slice(None)
            for dim in dims
        )
        return np.ascontiguousarray(array[cuts])


def _run(model: ReferenceModel, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of a model, by name."""
    taken = {name: array for name, array in feeds.items() if name in model.input_names}
    return dict(zip(model.output_names, model(taken), strict=True))


def _is_tied(array: Array) -> bool:
    """Whether rounding may go either way; zeros, as of what is masked, are exact."""
    doubled = 2 * array[array != 0].astype(np.float64)
    off = np.abs(doubled - np.rint(doubled))
    return bool(np.any(off <= _TIED * np.maximum(1.0, np.abs(doubled)))) or not math.isfinite(float(np.sum(off)))
