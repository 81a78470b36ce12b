"""What ``sartor generate`` shows of tokens that end, or are ended, early."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sartor.cli.commands import generate as command
from sartor.errors import SartorError, UsageError


def _generate(monkeypatch: pytest.MonkeyPatch, tokens: list[int], error: SartorError | None, **options: Any) -> None:
    def tokens_until_error(_: object, __: object, count: int, **___: Any) -> Iterator[int]:
        yield from tokens[:count]
        if error is not None:
            raise error

    class NoSession:
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        most_positions = 4

        def __enter__(self) -> NoSession:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(command, "generate", tokens_until_error)
    monkeypatch.setattr(command, "Session", NoSession)
    command.generate_tokens(Path("decoder.vmfb"), "3,7", **options)


@pytest.mark.parametrize("tokens", [[], [5], [5, 6]])
def test_all_tokens_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tokens: list[int]
) -> None:
    _generate(monkeypatch, tokens, None, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert (found["prompt"], found["tokens"], found["is_complete"]) == ([3, 7], tokens, True)
    _generate(monkeypatch, tokens, None)
    assert capsys.readouterr().out == ",".join(map(str, tokens)) + "\n"


def test_what_came_before_an_error_is_shown_as_incomplete(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match="full"):
        _generate(monkeypatch, [5], UsageError("the caches are full"), as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert (found["tokens"], found["is_complete"]) == ([5], False)
    with pytest.raises(UsageError, match="full"):
        _generate(monkeypatch, [], UsageError("the caches are full"), as_json=True)
    assert not capsys.readouterr().out


def test_it_ends_where_the_caches_are_full_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _generate(monkeypatch, [5, 6, 7, 8, 9], None)
    found = capsys.readouterr()
    assert found.out == "5,6,7\n"
    assert "ends behind 3 tokens, as there is room for 4 positions" in found.err
    _generate(monkeypatch, [5, 6, 7, 8, 9], None, max_new_tokens=3)
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize("prompt", ["1,,2", "1,", "", "1.5,2", "-1", "one"])
def test_prompts_that_are_no_lists_of_tokens_are_refused(prompt: str) -> None:
    with pytest.raises(UsageError, match="no list of tokens"):
        command.generate_tokens(Path("decoder.vmfb"), prompt)


def test_a_tokenizer_that_is_missing_is_told_first() -> None:
    with pytest.raises(UsageError, match=r"nothere.json' cannot be read"):
        command.generate_tokens(Path("decoder.vmfb"), "hello", Path("nothere.json"))
