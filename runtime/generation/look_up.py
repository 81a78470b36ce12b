"""Guesses what follows by what followed before (prompt look-up decoding, Saxena, 2023); parts of a prompt check it.

Texts repeat themselves: names, phrases, what a prompt quotes. Where the last tokens occurred before, what followed then
is guessed again. One call runs the guessed tokens, and tells which of them the model would have given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sartor.runtime.runs.part_sizes import PartSizes

# Tokens that have to agree before a guess, the longest first. One alone says too little to run a part for it.
_AGREEING = (3, 2)


class LookUp:
    """What a sequence of tokens had before, and whether guesses by it are worth their calls.

    Args:
        tokens: the prompt.
        most: most tokens to guess.
        parts: by which guesses are checked.
    """

    def __init__(self, tokens: Sequence[int], most: int, parts: PartSizes) -> None:
        self._tokens = list[int]()
        self._behind = dict[tuple[int, ...], int]()
        self._most = min(most, max(parts.sizes, default=1) - 1)
        self._parts = parts
        self._waits = self._failures = 0
        for token in tokens:
            self.follow(token)

    def follow(self, token: int) -> None:
        """Let a token follow."""
        for count in _AGREEING:
            if len(self._tokens) >= count:
                self._behind[tuple(self._tokens[-count:])] = len(self._tokens)
        self._tokens.append(token)

    def guess(self, room: int) -> list[int]:
        """What may follow, at most as many tokens as there is ``room`` for; nothing where a call would not pay.

        What is guessed may go on behind the last token, as where a sequence repeats itself at once.
        """
        self._waits -= 1
        most = min(self._most, room)
        if self._waits >= 0:
            return []
        for count in _AGREEING:
            begin = self._behind.get(tuple(self._tokens[-count:]))
            if begin is not None and len(self._tokens) >= count:
                guessed = [*self._tokens]
                for place in range(begin, begin + most):
                    guessed.append(guessed[place])
                guessed = guessed[len(self._tokens) :]
                return guessed if len(guessed) + 1 > self._cost(guessed) else []
        return []

    def learn(self, guessed: Sequence[int], right: int) -> None:
        """Take note of how many tokens of a guess were right. Behind guesses that cost more than they saved, as many
        tokens as that and more go without one, twice as many behind each further one."""
        lost = math.ceil(self._cost(guessed)) - right - 1
        self._failures = self._failures + 1 if lost > 0 else 0
        self._waits = lost << self._failures if lost > 0 else 0

    def _cost(self, guessed: Sequence[int]) -> float:
        """How many calls of one token the call takes that checks a guess."""
        return self._parts.calls_of_part(len(guessed) + 1)
