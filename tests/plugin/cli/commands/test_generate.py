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
    def tokens_until_error(*_: Any, **__: Any) -> Iterator[int]:
        yield from tokens
        if error is not None:
            raise error

    class NoSession:
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

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
