"""The error of tokens: on logits whose distributions are known, and beside other outputs of a decoder."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sartor.errors import UsageError
from sartor.runtime.driver.signature import Array
from sartor.tuning.errors.error_measures import ErrorMeasure
from sartor.tuning.errors.token_error import TokenError, logits_among, token_error

_RIGHT = np.log(np.array([[[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]], np.float32))
_OTHER = np.log(np.array([[[0.25, 0.5, 0.25], [0.1, 0.2, 0.7]]], np.float32))
_CACHE = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
_TOKENS = ErrorMeasure.parse("tokens")


def test_agreement_and_divergence_are_means_over_positions() -> None:
    found = token_error(_OTHER, _RIGHT)
    assert found.disagreement == 0.5
    divergence = 0.5 * math.log(2) - 0.25 * math.log(2)
    assert found.divergence == pytest.approx(divergence / 2, rel=1e-6)
    assert found.error == 0.5
    assert token_error(_RIGHT + 3, _RIGHT).error == pytest.approx(0, abs=1e-3), "logits have no origin"


def test_without_other_tokens_the_error_bounds_what_probabilities_change() -> None:
    near = np.log(np.array([[[0.48, 0.27, 0.25], [0.1, 0.2, 0.7]]], np.float32))
    found = token_error(near, _RIGHT)
    assert found.disagreement == 0
    assert 0.01 <= found.error < 0.02, "half the sum of differences of probabilities, on average"


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_no_number_agrees_nowhere(wrong: float) -> None:
    spoilt = np.full_like(_RIGHT, wrong)
    assert token_error(spoilt, _RIGHT).error >= 0.5
    holes = np.where(_RIGHT.min() == _RIGHT, np.nan, _RIGHT)
    assert token_error(holes, holes).error == 0
    assert token_error(_RIGHT, holes) == TokenError(0.5, math.inf)


def test_impossible_tokens_stay_impossible() -> None:
    masked = np.where(np.arange(3) == 1, -np.inf, _RIGHT)
    assert token_error(masked, masked).error == 0
    assert token_error(_RIGHT, masked).error > 0.1, "a mask that is lost"
    assert token_error(masked, _RIGHT) == TokenError(0, math.inf)
    assert token_error(masked, _RIGHT).error == 1


def test_logits_are_the_floats_with_the_largest_last_dimension() -> None:
    counts = np.zeros((1, 9), np.int64)
    assert logits_among([_CACHE, counts, _RIGHT]) == 2
    others: list[list[Array]] = [[counts, np.zeros(9, np.float32)], [_RIGHT, _RIGHT], []]
    for outputs in others:
        with pytest.raises(UsageError, match=r"tokens compares distributions over tokens, and the model has"):
            logits_among(outputs)


@pytest.mark.parametrize(
    ("names", "shapes", "place"),
    [
        (["present.0.key", "logits"], [(1, 8, 1, 64), (1, 1, 50)], 1),
        (["lm_logits", "present.0.key"], [(1, 1, 64), (1, 8, 1, 64)], 0),
        (["scores", "present.0.key", "present_0_value"], [(1, 1, 50), (1, 8, 1, 64), (1, 8, 1, 64)], 0),
        (["start_logits", "end_logits", "answers"], [(1, 9), (1, 9), (1, 12)], 2),
        (["last_hidden_state"], [(1, 1, 64)], 0),
    ],
)
def test_names_tell_logits_from_states(names: list[str], shapes: list[tuple[int, ...]], place: int) -> None:
    outputs = [np.zeros(shape, np.float32) for shape in shapes]
    assert logits_among(outputs, names) == place
    others = [output if index == place else output + 1e-3 for index, output in enumerate(outputs)]
    if len(names) > 1:
        assert _TOKENS.of_sample(others, outputs, names=names) > 0.1, "zeros are compared as vectors"
    moved = [output + 1e-3 if index == place else output for index, output in enumerate(outputs)]
    assert _TOKENS.of_sample(moved, outputs, names=names) < 1e-3, "logits have no origin"


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_ties_within_rounding_are_no_disagreement(dtype: type[np.floating]) -> None:
    near = {np.float16: 2**-10, np.float32: 1e-6, np.float64: 1e-15}[dtype]
    even, tilted = np.array([[1, 1]], dtype), np.array([[1, 1 + near]], dtype)
    assert token_error(tilted, even).disagreement == token_error(even, tilted).disagreement == 0
    apart = np.array([[1, 1 + 8 * near]], dtype)
    assert token_error(even, apart).disagreement == 1
    assert token_error(np.array([[1, 2]], dtype), np.array([[2, 1]], dtype)).disagreement == 1


@pytest.mark.parametrize(
    ("cache", "least"), [(_CACHE, 0), (_CACHE + 0.01, 0), (_CACHE[::-1], 0.1), (np.zeros_like(_CACHE), 0.5)]
)
def test_other_outputs_are_compared_by_the_cosine_distance(cache: Array, least: float) -> None:
    error = _TOKENS.of_sample([_RIGHT, cache], [_RIGHT, _CACHE])
    assert least <= error <= max(1e-3, 2 * least + 0.5 * bool(least))


def test_samples_are_averaged() -> None:
    assert _TOKENS.of_samples([_TOKENS.of_sample([each], [_RIGHT]) for each in (_OTHER, _RIGHT)]) == 0.25
