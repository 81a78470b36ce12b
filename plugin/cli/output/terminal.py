"""Prints progress, tables, JSON, and errors as one sentence with an exit code."""

from __future__ import annotations

import errno
import io
import json
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

from sartor.cli.output.messages import printable, say
from sartor.cli.output.signals import Interrupted
from sartor.cli.output.streams import flush, give_up_unwritten
from sartor.errors import INTERRUPTED, READER_GONE, InternalError, SartorError, SystemRefusedError, UsageError
from sartor.progress import Progress
from sartor.publishing import check_current_folder

# Some versions of typer take their errors from click, others from a copy of it.
_TYPER_ERROR: Any = typer.BadParameter.__bases__[0]
_PIPED_WIDTH = 160
# Python has no class of its own for this error.
_NO_THREAD = "can't start new thread"
# Drawing takes time from the core on which something is measured.
_FRAMES_PER_SECOND = 2


def run_app(app: typer.Typer) -> None:
    """Run a command line and exit; errors that a user can cause never show a traceback."""
    _never_fail_to_encode()
    try:
        sys.exit(_exit_code(app))
    finally:
        give_up_unwritten()


def _exit_code(app: typer.Typer) -> int:
    try:
        check_current_folder()
        result = app(standalone_mode=False)
        flush()
        return result if isinstance(result, int) else 0
    except SartorError as error:
        return refused(str(error), error.exit_code)
    except _TYPER_ERROR as error:
        return refused(_typer_sentence(error), error.exit_code)
    except BrokenPipeError:
        return READER_GONE
    except OSError as error:
        return refused(_sentence(error), SystemRefusedError.exit_code)
    except ImportError as error:
        return refused(unloaded(error), SystemRefusedError.exit_code)
    except MemoryError:
        return refused("there is not enough memory for that; see `ulimit -v`", SystemRefusedError.exit_code)
    except SystemExit as end:
        # So typer ends where nobody reads the output.
        if isinstance(end.__context__, BrokenPipeError):
            return READER_GONE
        raise
    except KeyboardInterrupt:
        return refused("interrupted", INTERRUPTED)
    except Interrupted as interrupt:
        return refused("interrupted", interrupt.exit_code)
    except Exception as error:  # noqa: BLE001 whatever it is, it is a defect, which is told as one
        if isinstance(error, RuntimeError) and str(error) == _NO_THREAD:
            return refused("the system starts no more threads; see `ulimit -u`", SystemRefusedError.exit_code)
        traceback.print_exception(error)
        return refused(str(InternalError.of(error)), InternalError.exit_code)


def _never_fail_to_encode() -> None:
    """Escape characters that the terminal cannot encode: layer names are Unicode, the encoding may be ASCII."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def refused(message: str, code: int) -> int:
    """Say why nothing is done; returns the exit code."""
    if message:
        say(f"error: {message}")
    return code


def unloaded(error: ImportError) -> str:
    """What is said of a library that is there but cannot be loaded."""
    reason = str(error).partition("\n")[0]
    return f"a library cannot be loaded ({reason}); see `ulimit -v`, or install the package again"


def _typer_sentence(error: Any) -> str:
    """What typer says of a wrong command line, in the form of other errors; empty if it has shown the help."""
    message = error.format_message().rstrip(".")
    where = f"; see '{error.ctx.command_path} --help'" if error.ctx is not None else ""
    return message and f"{message[0].lower()}{message[1:]}{where}"


def _sentence(error: OSError) -> str:
    reason = error.strerror or str(error)
    if error.errno in (errno.EMFILE, errno.ENFILE):
        reason += ": allow more, with 'ulimit -n 1024' in this shell or fewer programs at once"
    return f"'{error.filename}': {reason}" if error.filename else reason


@contextmanager
def tuning_progress() -> Iterator[Progress]:
    """Show progress on stderr: bars on a terminal, a line per step elsewhere. Ctrl-C, TERM and HUP end the command."""
    console = _console(sys.stderr)
    try:
        if console.is_terminal:
            with _bars(console) as bars:
                yield _OnBars(bars)
        else:
            yield _as_lines()
    except (KeyboardInterrupt, Interrupted) as interrupt:
        say("interrupted; what was measured is kept")
        raise typer.Exit(interrupt.exit_code if isinstance(interrupt, Interrupted) else INTERRUPTED) from None


class _Bars(Bars):
    """Bars with a line below them that says what was found so far."""

    found = ""

    def get_renderables(self) -> Iterator[RenderableType]:
        """The bars, then the line."""
        yield self.make_tasks_table(self.tasks)
        if self.found:
            yield Text(self.found)


def _bars(console: Console) -> _Bars:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return _Bars(*columns, console=console, transient=True, refresh_per_second=_FRAMES_PER_SECOND)


class _OnBars:
    """Reports progress by one bar, that of the current step; steps may repeat."""

    def __init__(self, bars: _Bars) -> None:
        self._bars = bars
        self._current: tuple[str, TaskID] | None = None

    def __call__(self, step: str, done: int, total: int) -> None:
        bars = self._bars
        if self._current is None or self._current[0] != step:
            if self._current is not None:
                bars.remove_task(self._current[1])
            self._current = (step, bars.add_task(step))
        bars.update(self._current[1], completed=done, total=total)

    def found(self, what: str) -> None:
        """Show what was found so far below the bar."""
        self._bars.found = what


def _as_lines() -> Progress:
    last = ""

    def report(step: str, done: int, total: int) -> None:
        nonlocal last
        if step != last:
            say(f"{step} ({total})" if total > 1 else step)
        last = step

    return report


def _console(stream: Any) -> Console:
    """A console that prints names without markup, and does not truncate them unless it is a terminal."""
    piped = not stream.isatty()
    return Console(file=stream, markup=False, emoji=False, highlight=False, width=_PIPED_WIDTH if piped else None)


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Print a table to stdout; ``right`` are the indices of columns that are aligned to the right."""
    table = Table(title=printable(title), title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(printable, row))
    _console(sys.stdout).print(table)


def show_facts(title: str, facts: Sequence[tuple[str, str]]) -> None:
    """Print names with their values to stdout."""
    table = Table(title=printable(title), title_justify="left", show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(printable(name), printable(value))
    _console(sys.stdout).print(table)


def show_json(data: object) -> None:
    """Print JSON, and nothing else, to stdout.

    Raises:
        UsageError: if ``data`` has a number that JSON cannot represent, as a sum of huge numbers of a file.
    """
    try:
        text = json.dumps(data, indent=1, ensure_ascii=True, allow_nan=False)
    except ValueError:
        raise UsageError("numbers of the file are too large to be shown") from None
    print(text, flush=True)


def milliseconds(seconds: float | None) -> str:
    """A time in milliseconds as text for a table; empty for None."""
    return "" if seconds is None else f"{seconds * 1e3:.3f}"


def gflops(rate: float | None) -> str:
    """Operations per second in GFLOP/s as text for a table; empty for None."""
    return "" if rate is None else f"{rate / 1e9:.1f}"


def optional(value: float | None, show: Callable[[float], str]) -> str:
    """A number as text for a table; empty for None."""
    return "" if value is None else show(value)
