"""By which parts a decoder takes a prompt: such that all calls together take the least time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence


class PartSizes:
    """The parts that a decoder takes beside single tokens.

    Args:
        calls: by the tokens of each kind of part, how many calls of one token take as long.
    """

    def __init__(self, calls: Mapping[int, float]) -> None:
        self._calls = {1: 1.0, **calls}
        self.sizes = tuple(sorted(calls))
        """Tokens of each kind of part."""
        self._first = dict[int, Sequence[int]]()

    @property
    def least(self) -> int:
        """From how many tokens on a part, filled up, takes less time than a call for each; 0 without parts."""
        return min((max(math.ceil(self._calls[size]), 2) for size in self.sizes), default=0)

    def calls(self, tokens: int) -> float:
        """How many calls of one token take as long as a prompt of so many, if there is room."""
        taken, left = 0.0, tokens
        while left > 0:
            size = self.next(left, max((tokens, *self.sizes)))
            taken += self._calls[size]
            left -= size
        return taken

    def part(self, tokens: int, room: int) -> int:
        """The shortest part that holds so many tokens and has room; 0 if none does."""
        return next((size for size in self.sizes if tokens <= size <= room), 0)

    def calls_of_part(self, tokens: int) -> float:
        """How many calls of one token take as long as the shortest part that holds so many."""
        return self._calls[self.part(tokens, self.sizes[-1])]

    def next(self, left: int, room: int) -> int:
        """The tokens of the next call: 1, or those of a part, which is filled up if not as many are left.

        Args:
            left: tokens to be run.
            room: positions that are free.
        """
        largest = max((size for size in self.sizes if size <= room), default=1)
        if largest not in self._first:
            self._first[largest] = self._firsts(largest)
        return self._first[largest][min(left, largest)]

    def _firsts(self, largest: int) -> Sequence[int]:
        """The first of the calls that together take the least time, for each number of tokens up to those of a part,
        by parts that are no larger."""
        sizes = [size for size in self._calls if size <= largest]
        taken, first = [0.0], [1]
        for left in range(1, largest + 1):
            seconds, size = min((self._calls[size] + taken[max(left - size, 0)], -size) for size in sizes)
            taken.append(seconds)
            first.append(-size)
        return first
