"""Entry points of ``sartor`` and ``compile-to-vmfb``. They import little, so that signals are handled early."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from sartor.cli.options.beginning import begin
from sartor.cli.output.messages import say_warnings
from sartor.cli.output.signals import ending_at_once, settle, unwinding
from sartor.cli.output.streams import open_missing
from sartor.errors import SystemRefusedError, UsageError
from sartor.workspace import nothing_collected

if TYPE_CHECKING:
    import typer

_HELP = {"--help", "--version"}
_IMPORTING = "sartor.frontend.import_job"
# What the worker that imports the model will need, too.
_LATER = ("sartor.tuning.networks.build_job", "sartor.codegen.routines", "sartor.tuning.networks.profile_job")
# One for ONNX Runtime, and one that compiles variants beside the first.
_OTHERS = 2


def main() -> None:
    """Entry point of ``sartor``."""
    _run(_app)


def compile_main() -> None:
    """Entry point of ``compile-to-vmfb``."""
    _run(_compile_app)


def _run(choose: Callable[[], typer.Typer]) -> None:
    begin()
    open_missing()
    say_warnings()
    with ending_at_once():
        from sartor.cli.options.empty_arguments import check_arguments
        from sartor.cli.output.terminal import refused, run_app, unloaded

        try:
            check_arguments(sys.argv[1:])
            # There is no garbage: looking for it took a fifth of the time of importing 1600 modules. They stay for as
            # long as the process, so later searches leave them out.
            with nothing_collected():
                app = choose()
                gc.freeze()
        except UsageError as error:
            sys.exit(refused(str(error), error.exit_code))
        except ImportError as error:
            sys.exit(refused(unloaded(error), SystemRefusedError.exit_code))
    with unwinding():
        try:
            run_app(app)
        finally:
            settle()
            # Else the interpreter looks for garbage when it ends, which takes as long as all else that it does then.
            gc.freeze()


def _command() -> str | None:
    """The first argument that is no option: a command of ``sartor``."""
    return next((argument for argument in sys.argv[1:] if not argument.startswith("-")), None)


def _app() -> typer.Typer:
    """All commands, or those that only run models if one of them is called, or nothing else is installed."""
    from sartor.cli.runtime_app import RUNTIME_COMMANDS, check_compiling, lacking, runtime_app

    command = _command()
    if command in RUNTIME_COMMANDS or (command is None and lacking()):
        return runtime_app
    check_compiling(f"sartor {command or ''}".strip())
    if command == "compile":
        _begin_compiling()
    from sartor.cli.apps import app

    return app


def _compile_app() -> typer.Typer:
    from sartor.cli.runtime_app import check_compiling

    check_compiling("compile-to-vmfb")
    _begin_compiling()
    from sartor.cli.compile_app import compile_app

    return compile_app


def _begin_compiling() -> None:
    """Load what importing a model takes, which this process needs, too, and start the workers that will need it: copies
    of this process, which has no other thread yet. One of them imports the model, one runs ONNX Runtime beside it.
    """
    if any(not argument.startswith("-") for argument in sys.argv[1:]) and not _HELP & {*sys.argv}:
        import_module(_IMPORTING)
        from sartor.tuning.workers.starting.interpreters import start_early

        start_early(f"{_IMPORTING}:get_going", later=_LATER, copies=True)
        for _ in range(_OTHERS):
            start_early(copies=True)
