"""The typer applications: ``sartor``, and ``compile-to-vmfb``, which is ``sartor compile``."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from sartor.cli.commands.bench import bench
from sartor.cli.commands.compare import compare
from sartor.cli.commands.compile import compile_to_vmfb
from sartor.cli.commands.db import db_app
from sartor.cli.commands.inspect import inspect
from sartor.cli.commands.routines import routines
from sartor.cli.commands.run import run

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)
compile_app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)

app.command("compile")(compile_to_vmfb)
compile_app.command()(compile_to_vmfb)
for _command in (run, bench, compare, inspect, routines):
    app.command()(_command)
app.add_typer(db_app, name="db")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"sartor {version('sartor')} (IREE {version('iree-base-compiler')})")
        raise typer.Exit


@app.callback()
def _sartor(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print versions and exit.")
    ] = False,
) -> None:
    """Compile ONNX models into tuned IREE modules, run them and look into them."""
