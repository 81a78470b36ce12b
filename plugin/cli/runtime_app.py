"""The typer application of the commands that only run models: they import neither the compiler nor ONNX.

A plain installation has these alone, and what the others need comes with ``sartor[compile]``. So do all commands that
are called here: they start sooner.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import typer

from sartor.cli.commands.doctor import doctor
from sartor.cli.commands.generate import generate_tokens
from sartor.cli.commands.run import run
from sartor.cli.commands.worker import worker
from sartor.cli.options.common import VersionOption
from sartor.errors import UsageError

RUNTIME_COMMANDS: dict[str, Callable[..., None]] = {
    "run": run,
    "generate": generate_tokens,
    "doctor": doctor,
    "worker": worker,
}
_COMPILING = ("highspy", "iree.compiler", "networkx", "onnx", "onnxruntime", "onnxslim", "pydantic", "xgboost")

runtime_app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)
for _name, _command in RUNTIME_COMMANDS.items():
    runtime_app.command(_name)(_command)


@runtime_app.callback()
def _sartor(version: VersionOption = False) -> None:
    """Run compiled models, and measure for compilations on other machines.

    pip install 'sartor[compile]' adds the commands that compile, and those that look into models.
    """


def lacking() -> list[str]:
    """The packages that commands need which compile, and that are not installed."""
    return [name for name in _COMPILING if not _is_there(name)]


def check_compiling(command: str) -> None:
    """Make sure that what a command needs which compiles is installed.

    Raises:
        UsageError: if not; the message says how to install it.
    """
    if missing := lacking():
        raise UsageError(
            f"'{command}' needs {', '.join(missing)}, which running models does not: pip install 'sartor[compile]'"
        )


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
