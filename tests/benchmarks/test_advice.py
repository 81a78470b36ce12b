"""What refusals of random models advise works."""

from __future__ import annotations

import pytest

from benchmarks.advice.follow import End, options_of, refusals

# Of models of all families that are refused once sizes and constants are freed, as most are.
_REFUSED = 12


def test_advice_for_random_models_works_or_says_what_it_lacks() -> None:
    results = [*refusals(_REFUSED)]
    assert results[-1].seed < 2 * _REFUSED
    assert {result.end for result in results} <= {End.WORKS, End.OWN}, results
    assert sum(result.end is End.WORKS for result in results) > len(results) // 2


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("bind it with --shape x=1,8 --shape 'a b=2'", [("--shape", "x=1,8"), ("--shape", "a b=2")]),
        ("fix them with --bind s=1,2, or with other values", [("--bind", "s=1,2")]),
        ("export the model again", []),
    ],
)
def test_options_of_messages(message: str, options: list[tuple[str, str]]) -> None:
    assert options_of(message) == options
