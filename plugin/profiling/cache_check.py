"""Checks a module that keeps caches as it is used: calls one after another, beside the user's model.

The reference takes caches that are its own, never the module's, and grow as the model's own outputs make them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sartor.codegen.ir.layer import NetworkValue
from sartor.errors import DeviceError, UsageError
from sartor.profiling.state_check import CALLS, CallErrors, ComparedCall, checked_in_session, errors_of_calls
from sartor.profiling.verify_job import Check
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.bound_input import bound_feeds
from sartor.runtime.driver.cache import Cache
from sartor.runtime.driver.signature import Array
from sartor.runtime.output_error import LAYER, output_scale
from sartor.runtime.session import Session
from sartor.tuning.records.signature import net_signature
from sartor.tuning.workers.protocol import WorkerError

# Calls of a first sequence that fills the caches; where there is room for more it ends earlier, as others do.
_MOST_CALLS = 32


@dataclass(frozen=True)
class CachingModel:
    """The model whose caches a module keeps.

    Attributes:
        path: the user's file, which takes and gives caches.
        caches: as the module has them.
        most: positions that there is room for.
    """

    path: Path
    caches: tuple[Cache, ...]
    most: int


def verify_caches(check: Check, model: CachingModel) -> CallErrors | WorkerError:
    """Worker side: run two sequences of calls of a module, and compare all outputs and caches of each call.

    The first fills the caches if few calls do.

    Raises:
        DeviceError: if the module does not run.
        UsageError: if a call has more positions than there is room for.
    """
    return checked_in_session(check, lambda session: _Calls(check, model, session).errors())


class _Calls:
    def __init__(self, check: Check, model: CachingModel, session: Session) -> None:
        self._check, self._model, self._session = check, model, session
        self._outputs = [spec.name for spec in net_signature(check.values).outputs]
        cached = {each.input for each in model.caches}
        self._inputs = [value for value in check.values[0] if value.name not in cached]
        rows = {value.name: value.type.shape[0] for value in check.values[1]}
        self._new = rows[model.caches[0].output]
        self._most = model.most // self._new
        if not self._most:
            raise UsageError(f"a call appends {self._new} positions to caches that have room for {model.most}")
        self._bound = bound_feeds(check.bound)
        self._reference = ReferenceModel(model.path, threads=check.threads)

    def errors(self) -> CallErrors:
        """The error of each call."""
        first = self._most if self._most <= _MOST_CALLS else CALLS[0]
        counts = first, min(CALLS[1], self._most)
        return errors_of_calls(self._check, self._session, self._outputs, self._sequence, counts)

    def _sequence(self, samples: Iterator[Mapping[str, Array]]) -> Iterator[ComparedCall]:
        """For each call what the module gave, with its caches among the outputs, and what was expected."""
        held = {name: np.zeros_like(array) for name, array in self._session.save().items()}
        free = [spec.name for spec in self._session.get_outputs()]
        for number, sample in enumerate(samples):
            feeds = {each.name: self._given(each, sample[each.name], number * self._new) for each in self._inputs}
            known = {**self._bound, **feeds, **held}
            taken = {name: each for name, each in known.items() if name in self._reference.input_names}
            right = dict(zip(self._reference.output_names, self._reference(taken), strict=True))
            given = dict(zip(free, self._run(feeds), strict=True))
            kept = self._session.save()
            given |= {each.output: kept[each.input] for each in self._model.caches}
            expected = [right[name] for name in self._outputs]
            scales = [output_scale(each, lenience=LAYER) for each in expected]
            yield [given[name] for name in self._outputs], expected, scales
            held = {each.input: right[each.output] for each in self._model.caches}

    def _run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Run the module.

        Raises:
            DeviceError: also if its caches have another length than they should.
        """
        try:
            return self._session.run(None, feeds)
        except UsageError as error:
            raise DeviceError(f"a call that keeps caches failed: {error}") from None

    def _given(self, value: NetworkValue, array: Array, before: int) -> Array:
        """An input of a call, as large as it is: masks hide nothing, and positions go on where the last call ended."""
        after = before + self._new
        shape = [size if isinstance(size, int) else after for size in value.type.dims or value.type.shape]
        if "mask" in value.name:
            return np.ones(shape, array.dtype)
        if "position" in value.name and array.dtype.kind == "i":
            return np.broadcast_to(np.arange(before, after, dtype=array.dtype), shape).copy()
        return np.ascontiguousarray(array[tuple(map(slice, shape))])
