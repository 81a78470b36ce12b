"""Options and texts that the commands of ``sartor db`` share."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from sartor.cli.output.messages import printable
from sartor.config import default_database
from sartor.errors import UsageError

DatabaseOption = Annotated[
    Path | None, typer.Option("--tuning-db", help="Tuning database. (default: in the user's cache directory)")
]


def existing_database(path: Path | None) -> Path:
    """The path of the database, by default the user's.

    Raises:
        UsageError: if the file does not exist.
    """
    database = path or default_database()
    if not database.exists():
        raise UsageError(
            f"there is no tuning database '{database}'; compiling a model, or 'sartor db import', makes one"
        )
    return database


def place(hardware: str, runtime: str, backend: str, threads: int) -> str:
    """Machine, versions and threads of a measurement, as text for a table."""
    return "\n".join([printable(hardware), printable(runtime), f"{printable(backend)}, threads: {threads}"])


def day(created: float) -> str:
    """The date of a time, as text for a table; a time outside the calendar as a number."""
    try:
        return datetime.fromtimestamp(created).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return f"{created:.0f}"
