"""States of a model: pairs of an input and an output that are the same storage across calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.runtime.driver.bound_input import BoundInput, Number, values_text
from sartor.runtime.driver.counts import find_cuts
from sartor.runtime.driver.signature import TensorSpec
from sartor.runtime.files.json_fields import Fields, listed, number, text

STATEFUL_SUFFIX, RESET_SUFFIX, STATES_SUFFIX, RESTORE_SUFFIX = "$stateful", "$reset", "$states", "$restore"
"""What follows the entry's name in those of the functions that keep states, let them begin, give and replace them."""

_MOST_SHOWN = 8


@dataclass(frozen=True)
class State:
    """What a call leaves behind for the next: an output that the next call reads as an input.

    Attributes:
        input: name of the input, by which callers know the state.
        output: name of the output.
        start: elements that the first call reads, in row-major order; empty for zeros.
    """

    input: str
    output: str
    start: tuple[Number, ...] = ()

    @staticmethod
    def read(content: object, where: str = "") -> State:
        """The fields of JSON data.

        Raises:
            FieldError: if they are not those of a state.
        """
        fields = Fields(content, where)
        state = State(fields.take("input", text), fields.take("output", text), fields.take("start", listed(number), ()))
        fields.end()
        return state

    def described(self, spec: TensorSpec) -> str:
        """The state in words; ``spec`` is that of its input."""
        shown = values_text(self.start[:_MOST_SHOWN]) + (",…" if len(self.start) > _MOST_SHOWN else "")
        return f"{self.output} -> {self.input}: {spec}, begins with {shown or 'zeros'}"


def check_states(states: Sequence[State], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
    """Make sure that each state is an input and an output of one static type, which no other state is.

    Raises:
        ValueError: if one is not.
    """
    given, taken = {spec.name: spec for spec in outputs}, {spec.name: spec for spec in inputs}
    for kind, names in (("input", [state.input for state in states]), ("output", [state.output for state in states])):
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"the {kind} '{twice}' is in two states")
    counted = set(_counted(outputs))
    for state in states:
        source, target = given.get(state.output), taken.get(state.input)
        if source is None or target is None:
            raise ValueError(f"the state '{state.input}' is no input and output")
        if (source.dtype, source.shape) != (target.dtype, target.shape) or None in source.shape:
            raise ValueError(f"the state '{state.input}' is {target} as an input, and {source} as an output")
        if state.output in counted:
            raise ValueError(f"the size of the state '{state.output}' depends on data")
        if state.start:
            BoundInput(target, state.start)


def _counted(outputs: Sequence[TensorSpec]) -> list[str]:
    """Outputs whose size depends on data, with those that count it."""
    names = [spec.name for spec in outputs]
    return [name for index, cut in find_cuts(names).items() for name in (names[index], names[cut.counted])]
