"""The next token by logits: the likeliest, or one that is drawn among those that are allowed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from sartor.errors import UsageError
from sartor.runtime.generation.sampling import Sampling

LOGITS = np.array([0.0, 2.0, -1.0, 1.0], np.float32)


def drawn(sampling: Sampling, occurred: Sequence[int] = (), count: int = 400) -> Counter[int]:
    random = np.random.default_rng(0)
    return Counter(sampling.next_token(LOGITS, occurred, random) for _ in range(count))


def test_without_temperature_the_likeliest_is_taken() -> None:
    assert drawn(Sampling(), count=3) == {1: 3}


def test_shares_follow_from_logits_and_temperature() -> None:
    shares = np.exp(LOGITS / 2) / np.exp(LOGITS / 2).sum()
    found = drawn(Sampling(temperature=2.0), count=4000)
    np.testing.assert_allclose([found[token] / 4000 for token in range(4)], shares, atol=0.03)


def test_few_of_the_likeliest_are_drawn() -> None:
    assert set(drawn(Sampling(temperature=1.0, top_k=2))) == {1, 3}
    # The shares are 0.64, 0.24, 0.09 and 0.03: the token that reaches the sum is among them.
    assert set(drawn(Sampling(temperature=1.0, top_p=0.7))) == {1, 3}
    assert set(drawn(Sampling(temperature=1.0, top_p=0.5))) == {1}
    assert set(drawn(Sampling(temperature=1.0))) == {0, 1, 2, 3}


def test_tokens_that_occurred_are_less_likely_whatever_their_sign() -> None:
    assert drawn(Sampling(repetition_penalty=3.0), [1, 1, 99], count=1) == {3: 1}
    negative = np.array([-1.0, -1.5], np.float32)
    assert Sampling(repetition_penalty=2.0).next_token(negative, [0], np.random.default_rng(0)) == 1


@pytest.mark.parametrize(
    "wrong",
    [{"temperature": -1.0}, {"temperature": np.nan}, {"top_k": -1}, {"top_p": 0.0}, {"repetition_penalty": 0.0}],
)
def test_numbers_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Sampling(**wrong)  # type: ignore[arg-type]
