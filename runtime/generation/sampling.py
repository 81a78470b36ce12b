"""Chooses the next token by a decoder's logits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real

import numpy as np

from sartor.errors import DeviceError, UsageError
from sartor.runtime.driver.signature import Array
from sartor.runtime.runs.given_arguments import check_type

Logits = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen.

    Attributes:
        temperature: divides the logits; 0 for the token with the largest, whatever the others are.
        top_k: only so many tokens with the largest logits are drawn; 0 for all.
        top_p: only the likeliest tokens are drawn whose probabilities add up to this (Holtzman and others, 2020); 1 for
            all.
        repetition_penalty: divides positive logits of tokens that occurred, and multiplies negative ones (Keskar and
            others, 2019); 1 for none.

    Raises:
        UsageError: if a number is out of its range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("temperature", "top_p", "repetition_penalty"):
            check_type(name, getattr(self, name), (Real,), "a number")
        if not 0 <= self.temperature < np.inf:
            raise UsageError(f"temperature is {self.temperature}, expected a number of 0 or more")
        if not isinstance(self.top_k, (int, np.integer)) or self.top_k < 0:
            raise UsageError(f"top_k is {self.top_k}, expected a number of tokens, or 0 for all")
        if not 0 < self.top_p <= 1:
            raise UsageError(f"top_p is {self.top_p}, expected a number above 0, and at most 1")
        if not 0 < self.repetition_penalty < np.inf:
            raise UsageError(f"repetition_penalty is {self.repetition_penalty}, expected a number above 0")

    def next_token(self, logits: Array, occurred: Iterable[int], random: np.random.Generator) -> int:
        """The next token.

        Args:
            logits: one for each token.
            occurred: tokens of the prompt, and those that followed.
            random: draws it.

        Raises:
            DeviceError: if logits are no numbers, or all tokens are ruled out.
        """
        scores: Logits = np.array(logits, np.float64)
        if not np.isfinite(scores.max()):
            raise DeviceError(f"the model's logits have no largest number but {scores.max()}; no token can be chosen")
        if self.repetition_penalty != 1:
            self._penalise(scores, occurred)
        if self.temperature == 0:
            return int(scores.argmax())
        order = np.argsort(-scores, kind="stable")
        if self.top_k:
            order = order[: self.top_k]
        shares = np.exp((scores[order] - scores[order[0]]) / self.temperature)
        shares /= shares.sum()
        if self.top_p < 1:
            # The one that reaches the sum is among them.
            count = int(np.searchsorted(np.cumsum(shares), self.top_p)) + 1
            order, shares = order[:count], shares[:count] / shares[:count].sum()
        return int(random.choice(order, p=shares))

    def _penalise(self, scores: Logits, occurred: Iterable[int]) -> None:
        tokens = np.array(sorted(set(occurred)), np.int64)
        tokens = tokens[tokens < len(scores)]
        array = scores[tokens]
        scores[tokens] = np.where(array > 0, array / self.repetition_penalty, array * self.repetition_penalty)
