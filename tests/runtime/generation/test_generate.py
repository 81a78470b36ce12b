"""What a decoder is given for each token, and what ends generating, by a session that stands for a compiled one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import pytest

from sartor.errors import DeviceError, UsageError
from sartor.runtime.driver.signature import Array
from sartor.runtime.generation.generate import generate
from sartor.runtime.runs.interface import NodeArg
from sartor.runtime.runs.part_sizes import PartSizes
from sartor.runtime.session import Session

VOCABULARY = 7
ROOM = 6


class Decoder:
    """Its likeliest token is the one after the token that was given; it keeps no more than so many positions."""

    most_positions = ROOM
    prompt_tokens, prompt_parts = 0, PartSizes({})

    def __init__(self) -> None:
        self.cached_positions = 0
        self.given: list[tuple[int, int, int]] = []
        self.broken = False

    def get_inputs(self) -> list[NodeArg]:
        shapes = {"input_ids": [1, 1], "position_ids": [1, 1], "attention_mask": [1, None]}
        return [NodeArg(name, "tensor(int64)", cast(Any, shape)) for name, shape in shapes.items()]

    def get_outputs(self) -> list[NodeArg]:
        return [NodeArg("logits", "tensor(float)", [1, 1, VOCABULARY])]

    def run(self, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        assert list(names) == ["logits"]
        token, position = (int(feeds[name].item()) for name in ("input_ids", "position_ids"))
        self.given.append((token, position, feeds["attention_mask"].size))
        if self.cached_positions == ROOM:
            raise UsageError("the caches are full")
        self.cached_positions += 1
        logits = np.zeros((1, 1, VOCABULARY), np.float32)
        logits[0, 0, (token + 1) % VOCABULARY] = np.nan if self.broken else 1
        return [logits]


class PromptDecoder(Decoder):
    """It takes four tokens of a prompt, too."""

    prompt_tokens, prompt_parts = 4, PartSizes({4: 2})

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[tuple[list[int], list[int], int]] = []

    def get_inputs(self) -> list[NodeArg]:
        names = "input_ids", "position_ids", "attention_mask"
        return [NodeArg(name, "tensor(int64)", [1, None]) for name in names]

    def get_outputs(self) -> list[NodeArg]:
        return [NodeArg("logits", "tensor(float)", [1, None, VOCABULARY])]

    def run(self, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        (tokens,), (places,) = feeds["input_ids"].tolist(), feeds["position_ids"].tolist()
        assert self.cached_positions + len(tokens) <= ROOM
        self.parts.append((tokens, places, feeds["attention_mask"].size))
        self.cached_positions += len(tokens)
        return [np.eye(VOCABULARY, dtype=np.float32)[[[(token + 1) % VOCABULARY for token in tokens]]]]

    def run_last(self, names: Sequence[str], feeds: Mapping[str, Array], count: int) -> list[Array]:
        (found,), before = self.run(names, feeds), self.cached_positions - self.prompt_tokens
        self.cached_positions = before + count
        return [found[:, count - 1 : count]]


def test_a_prompt_goes_by_parts_of_which_the_last_is_filled_up_where_there_is_room() -> None:
    decoder = PromptDecoder()
    assert list(generated(decoder, [1, 2, 3], 2)) == [4, 5]
    assert decoder.parts == [([1, 2, 3, 3], [0, 1, 2, 3], 4), ([4], [3], 4)]
    assert decoder.cached_positions == 4
    full = PromptDecoder()
    assert list(generated(full, [1, 2, 3, 4, 5, 6], 1)) == [0]
    assert [tokens for tokens, _, _ in full.parts] == [[1, 2, 3, 4], [5], [6]]


def test_a_mask_of_rank_four_has_a_row_for_each_token_of_a_call() -> None:
    class MaskDecoder(PromptDecoder):
        def get_inputs(self) -> list[NodeArg]:
            *others, _ = super().get_inputs()
            return [*others, NodeArg("attention_mask", "tensor(int64)", [1, 1, None, None])]

        def run(self, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
            count = feeds["input_ids"].size
            assert feeds["attention_mask"].shape == (1, 1, count, self.cached_positions + count)
            return super().run(names, feeds)

    assert list(generated(MaskDecoder(), [1, 2, 3], 2)) == [4, 5]


@pytest.mark.parametrize("name", ["input_ids", "decoder_input_ids"])
def test_an_encoders_mask_is_not_made_up(name: str) -> None:
    """It had the decoder's positions."""

    class EncodedDecoder(Decoder):
        def get_inputs(self) -> list[NodeArg]:
            mask = NodeArg("encoder_attention_mask", "tensor(int64)", cast(Any, [1, None]))
            (ids, *others) = super().get_inputs()
            return [NodeArg(name, ids.type, ids.shape), *others, mask]

        def to_device(self, array: Array) -> Array:
            return array

        def run(self, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
            assert feeds["encoder_attention_mask"].shape == (1, 9)
            return super().run(names, {**feeds, "input_ids": feeds[name]})

    with pytest.raises(UsageError, match=r"takes 'encoder_attention_mask' beside .* give it by inputs="):
        generated(EncodedDecoder(), [1], 2)
    assert list(generated(EncodedDecoder(), [1], 2, inputs={"encoder_attention_mask": np.ones((1, 9))})) == [2, 3]


def generated(decoder: Decoder, prompt: Any, count: int, **options: Any) -> Any:
    return generate(cast(Session, decoder), prompt, count, **options)


def test_positions_and_masks_go_on_behind_what_is_held() -> None:
    decoder = Decoder()
    assert list(generated(decoder, [3, 4], 2)) == [5, 6]
    # The last token that was given is not in the caches.
    assert list(generated(decoder, np.array([6]), 1)) == [0]
    assert decoder.given == [(3, 0, 1), (4, 1, 2), (5, 2, 3), (6, 3, 4)]


def test_a_stop_token_ends_it_and_is_not_given() -> None:
    assert list(generated(Decoder(), [1], 5, stop_tokens=[4])) == [2, 3]


def test_tokens_come_until_the_caches_are_full() -> None:
    tokens = generated(Decoder(), [0], 20)
    assert [next(tokens) for _ in range(ROOM)] == [1, 2, 3, 4, 5, 6]
    with pytest.raises(UsageError, match=f"full, with {ROOM} positions of {ROOM}"):
        next(tokens)


def test_a_session_that_others_used_meanwhile_is_seen() -> None:
    decoder = Decoder()
    tokens = generated(decoder, [0], 4)
    assert next(tokens) == 1
    decoder.cached_positions = 0
    with pytest.raises(UsageError, match="holds 0 positions where generating left 1"):
        next(tokens)
    decoder.cached_positions = 3
    # It begins where the session is when the first token is asked for.
    late = generated(decoder, [5], 1)
    decoder.cached_positions = 2
    assert next(late) == 6
    assert decoder.given[-1] == (5, 2, 3)


@pytest.mark.parametrize("prompt", [[], "12", [1.7], [None], None, [-1], [VOCABULARY], [10**30]])
def test_prompts_that_are_no_tokens_are_refused(prompt: Any) -> None:
    with pytest.raises(UsageError, match="prompt_ids"):
        generated(Decoder(), prompt, 1)


def test_a_prompt_without_room_is_refused_before_anything_runs() -> None:
    decoder = Decoder()
    decoder.cached_positions = 2
    with pytest.raises(UsageError, match="5 tokens, and the caches hold 2 positions of 6"):
        generated(decoder, [1] * 5, 1)
    assert not decoder.given


@pytest.mark.parametrize(
    "options",
    [
        *(
            {"seed": -1},
            {"seed": 0.5},
            {"max_new_tokens": -1},
            {"top_k": 1.5},
            {"stop_tokens": 4},
            {"stop_tokens": [-5]},
        ),
        *({"temperature": "1"}, {"top_p": None}, {"repetition_penalty": [1]}, {"inputs": [1]}),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        generate(cast(Session, Decoder()), [1], **{"max_new_tokens": 1, **options})


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_are_told(temperature: float) -> None:
    decoder = Decoder()
    decoder.broken = True
    with pytest.raises(DeviceError, match="no token can be chosen"):
        next(generated(decoder, [1], 1, temperature=temperature))
