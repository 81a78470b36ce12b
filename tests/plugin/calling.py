"""Calling the command line as its user does."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import sartor.cli.main

PROGRAMS = {"sartor": "main", "compile-to-vmfb": "compile_main"}


def program(name: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", f"from sartor.cli.main import {PROGRAMS[name]} as m; m()", *map(str, arguments)]


@dataclass(frozen=True)
class Result:
    """How a command ended, and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


def call(name: str, *arguments: object, folder: Path | None = None) -> Result:
    """Run a command in this process, which need not load everything anew."""
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr(sys, "argv", [name, *map(str, arguments)])
        patch.chdir(folder or Path.cwd())
        with pytest.raises(SystemExit) as ended:
            getattr(sartor.cli.main, PROGRAMS[name])()
    return Result(int(ended.value.code or 0), out.getvalue(), err.getvalue())


def parsed(result: Result) -> Any:
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def assert_refused(result: Result, code: int, *said: str) -> None:
    assert result.returncode == code, result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    message = result.stderr.splitlines()[-1]
    assert message.startswith("error: ")
    for part in said:
        assert part in message
