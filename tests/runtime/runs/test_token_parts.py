"""Runs of any number of tokens by parts: what they give, what is filled up, and what is left behind a failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from sartor.errors import DeviceError, UsageError
from sartor.runtime.driver.signature import Array, Signature, TensorSpec
from sartor.runtime.runs.part_sizes import PartSizes
from sartor.runtime.runs.token_parts import TokenParts

_PART, _MOST = 6, 20


def signature(tokens: int) -> Signature:
    inputs = (
        TensorSpec("input_ids", "int64", (1, tokens)),
        TensorSpec("scale", "float32", (1,)),
        TensorSpec("mask", "int64", (1, None)),
    )
    return Signature(
        "main", inputs, (TensorSpec("sums", "float32", (1, tokens, 1)), TensorSpec("last", "float32", (1,)))
    )


class Decoder:
    """The sum of all tokens up to each."""

    most_positions = _MOST

    def __init__(self) -> None:
        self.held: list[int] = []
        self.calls: list[int] = []

    @property
    def cached_positions(self) -> int:
        return len(self.held)

    def truncate(self, length: int) -> None:
        del self.held[length:]

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Array]) -> list[Array]:
        tokens = feeds["input_ids"][0].tolist()
        self.calls.append(len(tokens))
        self.held += tokens
        if -1 in tokens:
            raise DeviceError("a token of -1")
        assert feeds["mask"].shape == (1, len(self.held))
        assert len(self.held) <= _MOST
        sums = np.cumsum(self.held)[-len(tokens) :].astype(np.float32)
        known = {"sums": sums[None, :, None], "last": sums[-1:]}
        return [known[name] for name in output_names or known]


PARTS = TokenParts(signature(1), signature(_PART), PartSizes({_PART: 2}))


def feeds(tokens: Sequence[int], held: int = 0) -> dict[str, Array]:
    mask = np.ones((1, held + len(tokens)), np.int64)
    return {"input_ids": np.array([tokens]), "scale": np.ones(1, np.float32), "mask": mask}


@pytest.mark.parametrize(
    ("count", "calls"),
    [(2, [6]), (7, [6, 1]), (8, [6, 6]), (14, [6, 6, 6]), (19, [6, 6, 6, 1]), (20, [6, 6, 6, 1, 1])],
)
def test_outputs_of_tokens_are_those_of_one_after_another(count: int, calls: list[int]) -> None:
    decoder, tokens = Decoder(), list(range(1, count + 1))
    (found,) = PARTS.run(decoder, ["sums"], PARTS.arrays(feeds(tokens)))
    np.testing.assert_array_equal(found[0, :, 0], np.cumsum(tokens))
    assert (decoder.held, decoder.calls) == (tokens, calls)


def test_an_output_without_tokens_is_that_of_the_last_one_which_nothing_follows() -> None:
    decoder = Decoder()
    parts = TokenParts(signature(1), signature(_PART), PartSizes({_PART: 2}))
    for begin, count in ((0, 8), (8, 2)):
        tokens = list(range(begin, begin + count))
        found = parts.run(decoder, ["last", "sums"], parts.arrays(feeds(tokens, begin)))
        assert found[0] == found[1][0, -1, 0] == sum(range(begin + count))
    assert decoder.calls == [6, 1, 1, 1, 1]


def test_a_failure_leaves_what_was_held() -> None:
    decoder = Decoder()
    decoder.held = [5, 5]
    with pytest.raises(DeviceError):
        PARTS.run(decoder, ["sums"], feeds([1, 2, 3, 4, 5, 6, -1], 2))
    assert decoder.held == [5, 5]
    with pytest.raises(UsageError, match="the run has 19 tokens, and the caches hold 2 positions of 20"):
        PARTS.run(decoder, ["sums"], feeds([1] * 19, 2))
    with pytest.raises(UsageError, match="'mask' has the size 3 in dimension 1, and the caches have 5 positions"):
        PARTS.run(decoder, ["sums"], feeds([1, 2, 3]))
    assert decoder.held == [5, 5]


def test_other_runs_are_left_alone() -> None:
    for given in (
        feeds([1]),
        feeds([1] * _PART),
        {**feeds([1, 2]), "other": np.ones(1)},
        {**feeds([1, 2]), "input_ids": np.ones(2, np.int64)},
        {**feeds([1, 2]), "mask": [[1, 1]]},
        None,
    ):
        assert PARTS.arrays(given) == {}


@pytest.mark.parametrize(("least", "calls"), [(2, [6, 6]), (4, [6, 1, 1, 1]), (6, [6, 1, 1, 1])])
def test_a_rest_of_few_tokens_goes_one_by_one(least: int, calls: list[int]) -> None:
    decoder, parts = Decoder(), TokenParts(signature(1), signature(_PART), PartSizes({_PART: least}))
    parts.run(decoder, ["sums"], feeds(range(9)))
    assert decoder.calls == calls


@pytest.mark.parametrize(("count", "given"), [(1, {}), (1, {"input_ids": np.ones((1, 2)), "scale": 1, "mask": 1})])
def test_inputs_of_another_number_of_tokens_are_no_part(count: int, given: dict[str, Array]) -> None:
    with pytest.raises(UsageError, match=f"no part of a prompt, which has {_PART} tokens"):
        PARTS.check(given, count)


def test_what_is_behind_a_token_of_a_part_is_its_row_alone() -> None:
    sums, last = np.arange(_PART, dtype=np.float32)[None, :, None], np.ones(1, np.float32)
    row, same = PARTS.behind(["sums", "last"], [sums, last], 3)
    assert row.tolist() == [[[2.0]]]
    assert same is last


def test_tokens_are_taken_by_parts_of_several_sizes() -> None:
    decoder, tokens = Decoder(), list(range(1, 12))
    parts = TokenParts(signature(1), signature(_PART), PartSizes({3: 1.5, _PART: 2.0}))
    (found,) = parts.run(decoder, ["sums"], parts.arrays(feeds(tokens)))
    np.testing.assert_array_equal(found[0, :, 0], np.cumsum(tokens))
    assert (decoder.held, decoder.calls) == (tokens, [6, 6])
    assert parts.arrays(feeds(tokens[:3])) == {}
    assert parts.check(feeds(tokens[:3]), 2) == 3
    decoder = Decoder()
    # What has no axis of tokens is right behind whole parts alone.
    parts.run(decoder, ["last"], feeds(tokens))
    assert decoder.calls == [6, 3, 1, 1]
