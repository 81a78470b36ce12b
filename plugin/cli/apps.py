"""The typer application ``sartor``; ``compile-to-vmfb`` is its command ``compile``."""

from __future__ import annotations

import typer

from sartor.cli.commands.bench import bench
from sartor.cli.commands.compare import compare
from sartor.cli.commands.compile import compile_to_vmfb
from sartor.cli.commands.db import db_app
from sartor.cli.commands.inspect import inspect
from sartor.cli.commands.report import report
from sartor.cli.commands.routines import routines
from sartor.cli.options.common import VersionOption
from sartor.cli.options.comparing import BisectsByDefault
from sartor.cli.runtime_app import RUNTIME_COMMANDS

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)

app.command("compile")(compile_to_vmfb)
app.command()(bench)
app.command(cls=BisectsByDefault)(compare)
app.command()(inspect)
app.command()(report)
app.command()(routines)
app.add_typer(db_app, name="db")
for _name, _command in RUNTIME_COMMANDS.items():
    app.command(_name)(_command)


@app.callback()
def _sartor(version: VersionOption = False) -> None:
    """Compile ONNX models into tuned IREE modules, run them and look into them."""
