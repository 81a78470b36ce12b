"""Checks a module as it is used that keeps states: calls one after another, beside the reference with states by hand.

The reference's states are its own, never the module's: an error that each call adds to is seen as it grows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice

import numpy as np

from sartor.errors import SartorError
from sartor.profiling.verify_job import Check, References, references_of, where_of
from sartor.reference.expected_outputs import Expected
from sartor.runtime.driver.counts import shown_outputs
from sartor.runtime.driver.signature import Array
from sartor.runtime.driver.state import State
from sartor.runtime.output_error import LAYER, largest_computed, output_scale
from sartor.runtime.session import Session
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.records.signature import net_signature
from sartor.tuning.workers.protocol import WorkerError

CALLS = (8, 3)
"""Calls of one sequence, and then, after a reset, of another."""
MOST_SAMPLES = 8
"""Different inputs, if there are as many."""
SATURATED = 2.0**-14
"""Of the largest of a state that is no mask: what gates that are right to 2^-24 leave is then right to 1e-3."""
# An error is said to grow if the last call of a sequence has so many times that of the first.
_GROWN = 4.0


ComparedCall = tuple[Sequence[Array], Sequence[Array], Sequence[Array]]
"""What a call gave, what was expected, and the scales of the outputs' errors."""
Calls = Callable[[Iterator[Mapping[str, Array]]], Iterator[ComparedCall]]


@dataclass(frozen=True)
class CallErrors:
    """The errors of calls that keep states.

    Attributes:
        errors: of each call, in order.
        where: in which output, or state, the largest error of each call is, as ``worst_output`` writes it.
        before_reset: number of calls of the first sequence.
    """

    errors: tuple[float, ...] = ()
    where: tuple[str, ...] = ()
    before_reset: int = CALLS[0]

    @property
    def worst(self) -> int:
        """The call with the largest error."""
        return max(range(len(self.errors)), key=lambda call: _rank(self.errors[call]))

    def run(self, before: NetRun) -> NetRun:
        """A right run with the largest of its own error and of the calls'."""
        worst = self.errors[self.worst]
        if before.error is not None and _rank(worst) <= _rank(before.error):
            return before
        return replace(before, error=worst, message=self.where[self.worst])

    def is_near(self, before: NetRun) -> bool:
        """Whether errors are as those of single runs that were judged by their layers, as rounding is amplified."""
        return before.error is not None and _rank(self.errors[self.worst]) <= _GROWN * before.error

    @property
    def sentence(self) -> str:
        """Which call the largest error is of, and how it came to be."""
        worst = self.worst
        begin, place = (0, "") if worst < self.before_reset else (self.before_reset, " after a reset")
        first, number = self.errors[begin], worst - begin + 1
        grows = number > 1 and first > 0 and self.errors[worst] > _GROWN * first
        grown = f", and grew from {first:.2g} in the first" if grows else ""
        return f"it is that of call {number}{place}, with states kept by the module{grown}"


def scales_of_calls(right: Expected) -> list[Array]:
    """The scales of a call's outputs. A part that is much smaller than the rest counts as if it were not so small.

    Single runs find the noise of a part on the same states. Here states differ by the rounding of all calls before, and
    a cell that has saturated may hold nothing else: a gate of 1e-9 is right to 2^-24, as 1 is.
    """
    return [
        np.maximum(np.maximum(scale, output_scale(output, lenience=LAYER)), SATURATED * largest_computed(output))
        for output, scale in zip(right.outputs, right.scales, strict=True)
    ]


def _rank(error: float) -> float:
    return math.inf if math.isnan(error) else error


def verify_states(check: Check, states: Sequence[State]) -> CallErrors | WorkerError:
    """Worker side: run two sequences of calls of a module, and compare all outputs and states of each call.

    Raises:
        DeviceError: if the module does not run.
    """
    return checked_in_session(check, lambda session: _Calls(check, states, session).errors())


def checked_in_session(check: Check, errors: Callable[[Session], CallErrors]) -> CallErrors | WorkerError:
    """What a check of calls finds in a session of the module."""
    try:
        device = check.files.open_device(check.device, check.threads)
        parameters = check.files.parameters
        with Session(check.files.module, device=device, parameters=parameters, huge_pages=False) as session:
            return errors(session)
    except SartorError as error:
        return WorkerError(error)


def errors_of_calls(
    check: Check, session: Session, outputs: Sequence[str], sequence: Calls, counts: tuple[int, int] = CALLS
) -> CallErrors:
    """The errors of two sequences of calls with a reset between them.

    Args:
        check: what is run.
        session: of the module.
        outputs: names of what is compared.
        sequence: makes the calls of a sequence with these inputs.
        counts: calls of each sequence.
    """
    errors, where = list[float](), list[str]()
    samples = cycle(islice(check.samples.since(0), MOST_SAMPLES))
    for count in counts:
        if errors:
            session.reset()
        for given, expected, scales in sequence(islice(samples, count)):
            errors.append(check.measure.of_sample(given, expected, scales, outputs))
            where.append(where_of(check, given, expected, scales))
    return CallErrors(tuple(errors), tuple(where), counts[0])


class _Calls:
    def __init__(self, check: Check, states: Sequence[State], session: Session) -> None:
        self._check, self._states, self._session = check, states, session
        signature = net_signature(check.values)
        self._outputs = [spec.name for spec in shown_outputs(signature.outputs)]
        self._types = {spec.name: spec for spec in signature.inputs}
        self._references: References = references_of(check)

    def errors(self) -> CallErrors:
        errors = errors_of_calls(self._check, self._session, self._outputs, self._sequence)
        self._references.unload()
        return errors

    def _sequence(self, samples: Iterator[Mapping[str, Array]]) -> Iterator[ComparedCall]:
        """For each call what the module gave, with its states among the outputs, and what was expected."""
        held = {state.input: self._start(state) for state in self._states}
        free = [spec.name for spec in self._session.get_outputs()]
        for sample in samples:
            right = self._references({**sample, **held})
            feeds = {name: array for name, array in sample.items() if name not in held}
            given = dict(zip(free, self._session.run(None, feeds), strict=True))
            kept = self._session.save()
            given |= {state.output: kept[state.input] for state in self._states}
            yield [given[name] for name in self._outputs], right.outputs, scales_of_calls(right)
            expected = dict(zip(self._outputs, right.outputs, strict=True))
            held = {state.input: np.asarray(expected[state.output]) for state in self._states}

    def _start(self, state: State) -> Array:
        spec = self._types[state.input]
        shape = [size or 0 for size in spec.shape]
        return (
            np.array(state.start, spec.numpy_dtype).reshape(shape) if state.start else np.zeros(shape, spec.numpy_dtype)
        )
