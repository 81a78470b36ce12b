"""What tests of files with several plans share."""

from __future__ import annotations

from typing import Any

import pytest

from sartor.runtime.driver.program import Program


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions that sessions call, without those that run in memory that was bound."""
    names: list[str] = []
    invoke = Program.invoke

    def noted(program: Program, function: str, *arguments: Any) -> list[object]:
        names.append(function)
        return invoke(program, function, *arguments)

    monkeypatch.setattr(Program, "invoke", noted)
    return names
