"""Tokens that are guessed by what followed before, and checked by parts, are those that single calls give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import pytest

from sartor.errors import UsageError
from sartor.runtime.driver.signature import Array
from sartor.runtime.generation.generate import generate
from sartor.runtime.generation.look_up import LookUp
from sartor.runtime.runs.interface import NodeArg
from sartor.runtime.runs.part_sizes import PartSizes
from sartor.runtime.session import Session

VOCABULARY, ROOM = 5, 60
PARTS = PartSizes({4: 1.5, 8: 2.5})


class Decoder:
    """Its logits behind a token depend on all tokens that it holds; ``period`` of these are enough to tell the next
    likeliest one, so that sequences repeat themselves."""

    most_positions, prompt_tokens, prompt_parts = ROOM, 8, PARTS

    def __init__(self, period: int) -> None:
        self.held: list[int] = []
        self.calls: list[int] = []
        self._period = period

    @property
    def cached_positions(self) -> int:
        return len(self.held)

    def truncate(self, length: int) -> None:
        assert length <= len(self.held)
        del self.held[length:]

    def get_inputs(self) -> list[NodeArg]:
        return [NodeArg(name, "tensor(int64)", [1, None]) for name in ("input_ids", "attention_mask")]

    def get_outputs(self) -> list[NodeArg]:
        return [NodeArg("logits", "tensor(float)", [1, None, VOCABULARY])]

    def run(self, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        (tokens,) = feeds["input_ids"].tolist()
        assert len(tokens) in (1, *PARTS.sizes)
        assert feeds["attention_mask"].size == len(self.held) + len(tokens) <= ROOM
        self.calls.append(len(tokens))
        rows = []
        for token in tokens:
            self.held.append(token)
            rows.append(self._logits())
        return [np.array([rows], np.float32)]

    def run_last(self, names: Sequence[str], feeds: Mapping[str, Array], count: int) -> list[Array]:
        before = len(self.held)
        (found,) = self.run(names, feeds)
        self.truncate(before + count)
        return [found[:, count - 1 : count]]

    def _logits(self) -> Array:
        told = self.held[-self._period :] if self._period else self.held
        return np.random.default_rng([len(told), *told]).standard_normal(VOCABULARY)


def generated(decoder: Decoder, prompt: Sequence[int], count: int, **options: Any) -> Any:
    return generate(cast(Session, decoder), prompt, count, **options)


@pytest.mark.parametrize("options", [{}, {"temperature": 0.7, "seed": 3}, {"repetition_penalty": 1.3}], ids=str)
@pytest.mark.parametrize("look_up", [1, 3, 7, 40])
@pytest.mark.parametrize("period", [0, 1, 2, 3])
def test_guesses_change_no_token(period: int, look_up: int, options: dict[str, Any]) -> None:
    prompt = [1, 2, 3, 1, 2, 4, 0, 1, 2]
    for count in (0, 1, 2, 5, 30, ROOM - len(prompt) + 1):
        plain, guessing = Decoder(period), Decoder(period)
        right = list(generated(plain, prompt, count, **options))
        assert list(generated(guessing, prompt, count, look_up=look_up, **options)) == right
        assert guessing.held == plain.held
        assert len(guessing.calls) <= len(plain.calls)


def test_a_sequence_that_repeats_itself_takes_fewer_calls() -> None:
    decoder = Decoder(1)
    tokens = list(generated(decoder, [1, 2], 50, look_up=7))
    assert len(tokens) == 50
    assert decoder.calls.count(8) >= 4
    assert len(decoder.calls) < 25


@pytest.mark.parametrize("taken", [1, 7, 12, 20])
def test_an_iterator_that_is_closed_leaves_what_was_given(taken: int) -> None:
    plain, guessing = Decoder(1), Decoder(1)
    tokens, guessed = generated(plain, [1, 2], 40), generated(guessing, [1, 2], 40, look_up=7)
    assert [next(guessed) for _ in range(taken)] == [next(tokens) for _ in range(taken)]
    guessed.close()
    assert guessing.held == plain.held


def test_a_stop_token_leaves_what_was_given() -> None:
    plain, guessing = Decoder(2), Decoder(2)
    (*_, last) = generated(Decoder(2), [1, 2], 25)
    for decoder, options in ((plain, {}), (guessing, {"look_up": 7})):
        decoder.tokens = list(generated(decoder, [1, 2], 40, stop_tokens=[last], **options))  # type: ignore[attr-defined]
    assert guessing.held == plain.held


def test_a_session_that_others_used_between_guessed_tokens_is_seen() -> None:
    decoder = Decoder(1)
    tokens = generated(decoder, [1, 2], 40, look_up=7)
    while 8 not in decoder.calls:
        next(tokens)
    decoder.truncate(2)
    with pytest.raises(UsageError, match="holds 2 positions where generating left"):
        next(tokens)
    assert len(decoder.held) == 2


def test_it_needs_parts_and_a_number() -> None:
    decoder = Decoder(1)
    with pytest.raises(UsageError, match="look_up is -1, expected a whole number"):
        generated(decoder, [1], 4, look_up=-1)
    decoder.prompt_parts = PartSizes({})
    with pytest.raises(UsageError, match="look_up needs a module that takes parts"):
        generated(decoder, [1], 4, look_up=3)


def test_what_followed_last_is_guessed_and_goes_on_behind_the_end() -> None:
    assert LookUp([1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3], 3, PARTS).guess(9) == [5, 1, 2]
    assert LookUp([1, 2, 1, 2], 7, PARTS).guess(9) == [1, 2] * 3 + [1]
    assert LookUp([1, 2, 1, 2], 7, PARTS).guess(2) == [1, 2]
    # Two tokens by a call that takes as long as two and a half.
    assert LookUp([1, 2, 1, 2], 7, PARTS).guess(0) == []
    assert LookUp([1, 2, 3, 4], 7, PARTS).guess(9) == []
    assert LookUp([1], 7, PARTS).guess(9) == []


def test_guesses_that_fail_are_made_less_often() -> None:
    sequence = LookUp([1, 2, 1, 2], 7, PARTS)
    sequence.learn([3] * 7, 0)
    waits = next(count for count in range(99) if sequence.guess(9))
    sequence.learn([3] * 7, 0)
    assert next(count for count in range(99) if sequence.guess(9)) > waits > 0
    sequence.learn([3] * 7, 5)
    assert sequence.guess(9)
