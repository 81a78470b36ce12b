"""Checks a module that keeps caches as it is used: calls one after another, beside the user's model.

The reference takes caches that are its own, never the module's, and grow as the model's own outputs make them. Of
caches in 8 bits those codes are the module's that lie as near.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sartor.codegen.ir.sizes.dims import Extent
from sartor.errors import DeviceError, UsageError
from sartor.profiling.state_check import CALLS, CallErrors, ComparedCall, checked_in_session, errors_of_calls
from sartor.profiling.verify_job import Check
from sartor.reference.tied_codes import is_tied
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.bound_input import bound_feeds
from sartor.runtime.driver.cache import Cache
from sartor.runtime.driver.signature import Array, TensorSpec
from sartor.runtime.output_error import LAYER, output_scale
from sartor.runtime.session import Session
from sartor.tuning.records.signature import net_signature
from sartor.tuning.workers.protocol import WorkerError

# Calls of a first sequence that fills the caches; where there is room for more it ends earlier, as others do.
_MOST_CALLS = 32
# Of the range of another size that callers choose.
_FRACTION = 8


@dataclass(frozen=True)
class CachingModel:
    """The model whose caches a module keeps.

    Attributes:
        path: the user's file, which takes and gives caches.
        caches: as the module has them.
        most: positions that there is room for.
        dtypes: numpy's names of the element types that the model's caches have, where the module has others.
    """

    path: Path
    caches: tuple[Cache, ...]
    most: int
    dtypes: Mapping[str, str] = field(default_factory=dict)


def verify_caches(check: Check, model: CachingModel) -> CallErrors | WorkerError:
    """Worker side: run two sequences of calls of a module, and compare all outputs and caches of each call.

    The first fills the caches if few calls do.

    Raises:
        DeviceError: if the module does not run.
        UsageError: if a call has more positions than there is room for.
    """
    return checked_in_session(check, lambda session: _Calls(check, model, session).errors())


@dataclass(frozen=True)
class _Step:
    """A call.

    Attributes:
        count: positions that it adds.
        filled: what it is filled up to, as a part of a prompt is; those are forgotten behind it.
    """

    count: int
    filled: int


class _Calls:
    def __init__(self, check: Check, model: CachingModel, session: Session) -> None:
        self._check, self._model, self._session = check, model, session
        self._outputs = [spec.name for spec in net_signature(check.values).outputs]
        rows = {value.name: value.type.shape[0] for value in check.values[1]}
        self._new = rows[model.caches[0].output]
        if self._new > model.most:
            raise UsageError(f"a call appends {self._new} positions to caches that have room for {model.most}")
        self._signatures = dict(zip((self._new, *session.prompt_parts.sizes), session.signatures, strict=False))
        self._bound, self._others = bound_feeds(check.bound), dict(_other_sizes(check, model))
        self._reference = ReferenceModel(model.path, threads=check.threads)

    def errors(self) -> CallErrors:
        """The error of each call."""
        sequences = [*self._sequences()]
        counts, left = (len(sequences[0]), len(sequences[1])), iter(sequences)

        def sequence(samples: Iterator[Mapping[str, Array]]) -> Iterator[ComparedCall]:
            return self._sequence(next(left), [*samples])

        return errors_of_calls(self._check, self._session, self._outputs, sequence, counts)

    def _sequences(self) -> Iterator[list[_Step]]:
        """Calls of two sequences: the first fills the caches if few do. Prompts come before tokens and behind them."""
        most, new, parts = self._model.most // self._new, self._new, self._session.prompt_parts.sizes
        one = _Step(new, new)
        if not parts:
            yield [one] * (most if most <= _MOST_CALLS else CALLS[0])
            yield [one] * min(CALLS[1], most)
            return
        wholes, cuts = [_Step(part, part) for part in parts], [_Step(part - part // 3, part) for part in parts]
        yield list(self._fitting([*wholes, one, *cuts, *[one] * CALLS[0], wholes[-1], cuts[-1], *[one] * CALLS[1]]))
        yield list(self._fitting([one, *cuts, one, *wholes, one]))

    def _fitting(self, steps: Sequence[_Step]) -> Iterator[_Step]:
        """The calls that there is room for."""
        held = 0
        for step in steps:
            if held + step.filled <= self._model.most:
                held += step.count
                yield step

    def _sequence(self, steps: Sequence[_Step], samples: Sequence[Mapping[str, Array]]) -> Iterator[ComparedCall]:
        """For each call what the module gave, with its caches among the outputs, and what was expected."""
        held, before = {name: self._begun(name, array) for name, array in self._session.save().items()}, 0
        for number, step in enumerate(steps):
            feeds = {
                spec_of_input.name: self._given(spec_of_input, samples, number, before, step.filled)
                for spec_of_input in self._signatures[step.filled].inputs
            }
            known = {**self._bound, **self._cut(feeds, step, before), **held}
            taken = {name: array for name, array in known.items() if name in self._reference.input_names}
            right = dict(zip(self._reference.output_names, self._reference(taken), strict=True))
            given = self._run(feeds, step, before)
            kept = self._session.save()
            given |= {cache.output: kept[cache.input] for cache in self._model.caches}
            expected = [right[name] for name in self._outputs]
            scales = [output_scale(output, lenience=LAYER) for output in expected]
            yield self._check.settled([given[name] for name in self._outputs], expected), expected, scales
            held, before = dict(self._held(given, right)), before + step.count

    def _held(self, given: Mapping[str, Array], right: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
        """The caches with which the reference goes on: its own, but for codes that a tie leaves open. Those of the
        module are as right, and others would change all that later calls give."""
        for cache in self._model.caches:
            name, own = cache.output, right[cache.output]
            is_open = name in self._check.coded and is_tied(given[name], own)
            yield cache.input, given[name] if is_open else own

    def _begun(self, name: str, kept: Array) -> Array:
        """A cache without positions as the model takes it, which may be kept in a wider type."""
        return np.zeros(kept.shape, self._model.dtypes.get(name, kept.dtype))

    def _run(self, feeds: Mapping[str, Array], step: _Step, before: int) -> dict[str, Array]:
        """Run the module, and forget what a call is filled up with. A part of a prompt runs once more for what is
        behind its last token alone, which takes the place of that.

        Raises:
            DeviceError: also if its caches have another length than they should.
        """
        specs, last = self._signatures[step.filled].outputs, list[Array]()
        try:
            outputs = dict(zip((spec.name for spec in specs), self._session.run(None, feeds), strict=True))
            if step.count < step.filled:
                self._session.truncate(before + step.count)
            if step.filled > self._new:
                self._session.truncate(before)
                last = self._session.run_last(None, feeds, step.count)
        except UsageError as error:
            raise DeviceError(f"a call that keeps caches failed: {error}") from None
        others = {spec.name: spec.shape for spec in self._signatures[self._new].outputs}
        for spec, behind in zip(specs, last, strict=bool(last)):
            for axis, (size, other) in enumerate(zip(spec.shape, others[spec.name], strict=True)):
                if size != other:
                    own = outputs[spec.name].take(range(step.count - 1), axis)
                    outputs[spec.name] = np.concatenate([own, behind], axis)
        return outputs

    def _given(
        self, spec: TensorSpec, samples: Sequence[Mapping[str, Array]], number: int, before: int, count: int
    ) -> Array:
        """An input of a call, as large as it is: masks hide nothing, and positions go on where the last call ended."""
        shape = [
            self._others.get((spec.name, axis), before + count) if size is None else size
            for axis, size in enumerate(spec.shape)
        ]
        if "mask" in spec.name:
            return np.ones(shape, spec.numpy_dtype)
        if "position" in spec.name and spec.numpy_dtype.kind == "i":
            return np.broadcast_to(np.arange(before, before + count, dtype=spec.numpy_dtype), shape).copy()
        arrays = [sample[spec.name] for sample in (*samples[number:], *samples)]
        first = arrays[0]
        if first.ndim == len(shape) and all(map(int.__ge__, first.shape, shape)):
            return np.ascontiguousarray(first[tuple(map(slice, shape))])
        return _drawn(np.concatenate([array.ravel() for array in arrays]), shape, (number, spec.name))

    def _cut(self, feeds: Mapping[str, Array], step: _Step, before: int) -> Mapping[str, Array]:
        """The inputs of a call without what it is filled up with."""
        if step.count == step.filled:
            return feeds
        cut = dict(feeds)
        for spec in self._signatures[step.filled].inputs:
            other = next(
                spec_of_other for spec_of_other in self._signatures[self._new].inputs if spec_of_other.name == spec.name
            )
            for axis, (size, own) in enumerate(zip(spec.shape, other.shape, strict=True)):
                if (size is None and (spec.name, axis) not in self._others) or size != own:
                    left = before + step.count if size is None else step.count
                    cut[spec.name] = cut[spec.name].take(range(left), axis)
        return cut


def _drawn(samples: Array, shape: Sequence[int], which: tuple[int, str]) -> Array:
    """An input of a call from smaller ones: integers between theirs, which then hardly repeat, or some of theirs. Of a
    few tokens over and over, a row in the place of another is not seen; nor is one of two inputs in the place of the
    other where they are equal.

    Args:
        samples: the smaller ones.
        shape: of the input.
        which: the number of the call, and the input's name.
    """
    number, name = which
    random = np.random.default_rng([number, *name.encode()])
    if samples.dtype.kind in "iu" and samples.size:
        return random.integers(samples.min(), samples.max(), shape, samples.dtype, endpoint=True)
    return random.choice(samples, shape)


def _other_sizes(check: Check, model: CachingModel) -> Iterator[tuple[tuple[str, int], int]]:
    """Sizes of inputs, by name and axis, that callers choose beside the number of positions: odd ones of the range."""
    inputs = {value.name: value.type.dims or () for value in check.values[0]}
    length = inputs[model.caches[0].input][0]
    for name, dims in inputs.items():
        for axis, dim in enumerate(dims):
            if isinstance(dim, Extent) and dim != length and dim.symbol is not None:
                yield (name, axis), dim.symbol.odd_near(dim.symbol.most / _FRACTION)
