"""A size of which only the range is known when a model is compiled."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sartor.errors import UsageError

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
        found = _RANGE.fullmatch(text)
        return None if found is None else SizeRange(int(found[1]), int(found[2]), int(found[3] or 1))

    def __str__(self) -> str:
        """The range as ``parse`` reads it."""
        return f"{self.least}..{self.most}" + (f":{self.multiple}" if self.multiple != 1 else "")


OpenShapes = Mapping[str, tuple[int | SizeRange, ...]]
"""Shapes of inputs by name, some of whose sizes are ranges."""
