"""What the user sees on stderr: warnings, also while bars are shown."""

from __future__ import annotations

import errno
import io
import logging
import os
import subprocess
import sys

import pytest
import typer
from rich.console import Console

from sartor.cli.output import terminal
from sartor.cli.output.messages import say_warnings
from sartor.errors import InternalError
from sartor.progress import tell_found


def test_a_warning_is_said_once_and_says_that_it_is() -> None:
    code = (
        "import logging; from sartor.cli.output.messages import say_warnings; say_warnings(); "
        "import sartor.codegen.mlir.iree_compiler; log = logging.getLogger('sartor.pipeline'); "
        "log.warning('no %s here', 'cuda'); log.info('nothing')"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stderr == "warning: no cuda here\n"


def test_a_warning_goes_above_the_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr(terminal, "_console", lambda stream: console)
    say_warnings()
    with terminal.tuning_progress() as progress:
        progress("measuring", 1, 2)
        logging.getLogger("sartor.test").warning("drifting")
    assert any(line.endswith("warning: drifting") for line in screen.getvalue().splitlines())


def test_what_was_found_so_far_is_below_the_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, color_system=None)
    monkeypatch.setattr(terminal, "_console", lambda stream: console)
    with terminal.tuning_progress() as progress:
        progress("measuring", 1, 2)
        tell_found(progress, "3 of 4 kinds of layers measured")
    shown = [line for line in screen.getvalue().splitlines() if line.strip()]
    assert any("3 of 4 kinds of layers measured" in line for line in shown)
    tell_found(lambda *_: None, "whoever does not want to know is not told")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ImportError("some.so: failed to map segment"), "a library cannot be loaded (some.so: failed to map segment)"),
        (MemoryError(), "there is not enough memory for that; see `ulimit -v`"),
        (RuntimeError("can't start new thread"), "the system starts no more threads; see `ulimit -u`"),
    ],
)
def test_what_a_small_limit_refuses_comes_with_a_way_out(
    error: Exception, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = typer.Typer()

    @app.command()
    def fail() -> None:
        raise error

    monkeypatch.setattr(sys, "argv", ["sartor"])
    assert terminal._exit_code(app) == 7
    assert said in capsys.readouterr().err


def test_what_nothing_explains_is_an_internal_error_with_its_place(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = typer.Typer()

    @app.command()
    def fail() -> None:
        raise KeyError("missing")

    monkeypatch.setattr(sys, "argv", ["sartor"])
    assert terminal._exit_code(app) == InternalError.exit_code == 70
    said = capsys.readouterr().err
    assert "Traceback" in said
    *_, last = said.splitlines()
    assert last.startswith("error: internal: KeyError: 'missing', in sartor.")


def test_too_few_open_files_come_with_a_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    app = typer.Typer()

    @app.command()
    def fail() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["sartor"])
        assert terminal._exit_code(app) == 7
    assert "ulimit -n 1024" in capsys.readouterr().err
