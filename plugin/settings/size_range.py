"""A size of which only the range is known when a model is compiled."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sartor.errors import UsageError
from sartor.settings.values import refusal, several, whole_number

_RANGE = re.compile(r"([0-9]{1,9})\.\.([0-9]{1,9})(?::([0-9]{1,9}))?")


@dataclass(frozen=True)
class SizeRange:
    """Any size from ``least`` to ``most`` that is a multiple of ``multiple``.

    Raises:
        UsageError: if no two sizes are in it, or it begins below one.
    """

    least: int
    most: int
    multiple: int = 1

    def __post_init__(self) -> None:
        """Round both ends to multiples."""
        if self.least < 1:
            raise UsageError(f"the range {self} begins below 1: a dimension of any size has at least one element")
        if self.multiple < 1:
            raise UsageError(f"the range {self} has steps of {self.multiple}")
        least = -(-self.least // self.multiple) * self.multiple
        most = self.most // self.multiple * self.multiple
        if most <= least:
            raise UsageError(f"the range {self} has fewer than two sizes; name one size, or more of them")
        object.__setattr__(self, "least", least)
        object.__setattr__(self, "most", most)

    @staticmethod
    def parse(text: str) -> SizeRange | None:
        """Read ``1..512`` or ``32..640:32``; None for a text of another form.

        Raises:
            UsageError: if no two sizes are in the range, or it begins below one.
        """
        match = _RANGE.fullmatch(text)
        return None if match is None else SizeRange(int(match[1]), int(match[2]), int(match[3] or 1))

    def __str__(self) -> str:
        """The range as ``parse`` reads it."""
        return f"{self.least}..{self.most}" + (f":{self.multiple}" if self.multiple != 1 else "")


OpenShapes = Mapping[str, tuple[int | SizeRange, ...]]
"""Shapes of inputs by name, some of whose sizes are ranges."""


def read_open_shapes(name: str, value: object) -> OpenShapes:
    """Shapes of inputs by name, in which a size is a number, a range, or a range as a text.

    Raises:
        UsageError: if a shape is not valid; the message names the setting and the input.
    """
    expected = "a mapping of input names to shapes, for example {'input_ids': (1, '1..512')}"
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise refusal(name, value, expected)
    return {
        key: tuple(_size(f"{name}[{key!r}]", size) for size in several(f"{name}[{key!r}]", shape, "sizes"))
        for key, shape in value.items()
    }


def _size(name: str, value: object) -> int | SizeRange:
    size = SizeRange.parse(value) if isinstance(value, str) else value
    return size if isinstance(size, SizeRange) else whole_number(name, value, 0)
