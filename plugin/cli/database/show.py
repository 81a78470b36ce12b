"""``sartor db show``: summarise the tuning database, and mark what this machine uses."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from sartor.cli.database.follow import follow
from sartor.cli.database.options import DatabaseOption, day, existing_database, place
from sartor.cli.options.common import JsonOption
from sartor.cli.output.terminal import show_json, show_table
from sartor.errors import UsageError
from sartor.settings.quantities import show_size
from sartor.tuning.store.prune import Pruning
from sartor.tuning.store.store import Store
from sartor.tuning.store.summary import SummaryRow

_DAY = 86400.0


def show(
    path: Annotated[Path | None, typer.Argument(metavar="[PATH]", help="The database, as --tuning-db.")] = None,
    tuning_db: DatabaseOption = None,
    followed: Annotated[
        bool,
        typer.Option("--follow", help="Print each measurement that a compilation makes from now on; end with Ctrl-C."),
    ] = False,
    prune_older_than: Annotated[float | None, typer.Option(min=0, hidden=True)] = None,
    json: JsonOption = False,
) -> None:
    """Show what was measured on which machine, and what of it this machine uses."""
    if path is not None and tuning_db is not None:
        raise UsageError(f"'{path}' and --tuning-db '{tuning_db}' name two databases; leave one of them out")
    database = existing_database(path or tuning_db)
    if followed:
        if json:
            raise UsageError("--follow prints lines as they come; leave --json out, or use 'sartor db export'")
        follow(database)
    removed = 0 if prune_older_than is None else _prune(database, prune_older_than)
    with Store.open_to_read(database) as store:
        rows, size = store.summary(), store.size_bytes
    if json:
        listed = [{**asdict(row), "used_here": row.used_here} for row in rows]
        show_json({"path": str(database), "size_bytes": size, "removed": removed, "rows": listed})
    else:
        _show(database, rows, size, removed)


def _prune(database: Path, days: float) -> int:
    with Store.open_to_write(database) as store:
        return store.prune(Pruning(created_before=time.time() - days * _DAY))


def _show(database: Path, rows: tuple[SummaryRow, ...], size: int, removed: int) -> None:
    columns = ("measured on", "used here", "tasks", "variants", "measurements", "failed", "under load", "MiB", "newest")
    pruned = f", {removed} measurements removed" if removed else ""
    show_table(f"{database}: {show_size(size)}{pruned}", columns, list(map(_row, rows)), right=range(2, 8))


def _row(row: SummaryRow) -> list[str]:
    numbers = (row.tasks, row.variants, row.measurements, row.failures, row.under_load)
    return [
        place(row.hardware, row.runtime, row.backend, row.threads),
        "yes" if row.used_here else "no",
        *map(str, numbers),
        f"{row.data_bytes / 2**20:.2f}",
        day(row.newest),
    ]
