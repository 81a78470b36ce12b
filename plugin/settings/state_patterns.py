"""Pairs of outputs and inputs that a user declares to be states, by names in which ``*`` stands for any text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sartor.errors import UsageError

FORM = "OUTPUT=INPUT, such as hn=h or present.*=past_key_values.*"
_ANY = "*"
# In a name it would be written as it is; models do not have it.
_BETWEEN = "\0"


@dataclass(frozen=True)
class StatePattern:
    """Names of an output and of the input that reads it in the next call; the k-th ``*`` is the same text in both.

    Raises:
        UsageError: if a name is empty, or both have another number of ``*``.
    """

    output: str
    input: str

    def __post_init__(self) -> None:
        """Check the names."""
        if not (self.output and self.input):
            raise UsageError(f"the state '{self}' cannot be read, expected {FORM}")
        if self.output.count(_ANY) != self.input.count(_ANY):
            raise UsageError(f"the state '{self}' has another number of * on each side; the k-th * is one text in both")

    @staticmethod
    def parse(text: str) -> StatePattern:
        """Read ``OUTPUT=INPUT``.

        Raises:
            UsageError: if the text has another form.
        """
        output, equals, input = text.partition("=")
        if not equals:
            raise UsageError(f"the state '{text}' cannot be read, expected {FORM}")
        return StatePattern(output, input)

    def __str__(self) -> str:
        return f"{self.output}={self.input}"

    def reads(self, name: str) -> bool:
        """Whether an input's name fits."""
        return _expression(self.input).fullmatch(name) is not None

    def pairs(self, outputs: Sequence[str], inputs: Sequence[str]) -> list[tuple[str, str]]:
        """The pairs of names that fit, outputs first, in the outputs' order.

        Raises:
            UsageError: if no name fits a side, or one has no counterpart on the other, unless all names fit its side.
        """
        fitting = [name for name in outputs if _expression(self.output).fullmatch(name)]
        if not fitting:
            raise UsageError(
                f"--state {self}: the model has no output '{self.output}'; its outputs are {_listed(outputs)}"
            )
        reading = [name for name in inputs if _expression(self.input).fullmatch(name)]
        if not reading:
            raise UsageError(f"--state {self}: the model has no input '{self.input}'; its inputs are {_listed(inputs)}")
        both = _expression(self.output, self.input)
        pairs_found = [
            (one, other) for one in fitting for other in reading if both.fullmatch(f"{one}{_BETWEEN}{other}")
        ]
        for kind, names, position in (("output", fitting, 0), ("input", reading, 1)):
            alone = [name for name in names if name not in {pair[position] for pair in pairs_found}]
            if alone and (self.output, self.input)[position] != _ANY:
                other = ("inputs", reading) if position == 0 else ("outputs", fitting)
                raise UsageError(
                    f"--state {self}: the {kind} '{alone[0]}' has no counterpart among the {other[0]} "
                    f"{_listed(other[1])}; name the states one by one, or with a pattern that fits them alone"
                )
        return pairs_found


def _expression(pattern: str, same: str = "") -> re.Pattern[str]:
    """What a pattern matches or, with another, both with a mark between, whose ``*`` are the same texts."""
    parts = [re.escape(part) for part in pattern.split(_ANY)]
    text = parts[0] + "".join(f"([^{_BETWEEN}]*){part}" for part in parts[1:])
    if same:
        first, *others = map(re.escape, same.split(_ANY))
        text += re.escape(_BETWEEN) + first + "".join(f"(?:\\{number}){part}" for number, part in enumerate(others, 1))
    return re.compile(text, re.DOTALL)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"
