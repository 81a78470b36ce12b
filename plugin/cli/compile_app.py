"""The typer application ``compile-to-vmfb``, apart from other commands and what these import."""

from __future__ import annotations

import typer

from sartor.cli.commands.compile import compile_to_vmfb

compile_app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)

compile_app.command()(compile_to_vmfb)
