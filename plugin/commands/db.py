"""``sartor db``: what the tuning database holds."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from sartor.commands.options import JsonOption
from sartor.config import default_database
from sartor.errors import UsageError
from sartor.terminal import show_json, show_table
from sartor.tuning.store import Store, SummaryRow

_DAY = 86400.0


def db(
    path: Annotated[
        Path | None, typer.Argument(metavar="[PATH]", help="The database. (default: in the user's cache directory)")
    ] = None,
    prune_older_than: Annotated[
        float | None, typer.Option(metavar="DAYS", min=0, help="Delete measurements that are older.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show what was measured on which machine, and delete what is old."""
    database = path or default_database()
    if not database.exists():
        raise UsageError(f"there is no tuning database '{database}'; compiling a model makes one")
    with Store.open(database) as store:
        removed = 0
        if prune_older_than is not None:
            removed = store.prune(created_before=time.time() - prune_older_than * _DAY)
        rows, size = store.summary(), store.size_bytes
    if json:
        listed = [asdict(row) for row in rows]
        show_json({"path": str(database), "size_bytes": size, "removed": removed, "rows": listed})
    else:
        _show(database, rows, size, removed)


def _show(database: Path, rows: tuple[SummaryRow, ...], size: int, removed: int) -> None:
    columns = ("measured on", "tasks", "variants", "measurements", "failed", "MiB", "newest")
    pruned = f", {removed} measurements removed" if removed else ""
    show_table(f"{database}: {size / 2**20:.2f} MiB{pruned}", columns, list(map(_row, rows)), right=range(1, 6))


def _row(row: SummaryRow) -> list[str]:
    where = "\n".join([row.hardware, row.runtime, f"{row.backend}, threads: {row.threads}"])
    numbers = (row.tasks, row.variants, row.measurements, row.failures)
    newest = datetime.fromtimestamp(row.newest).strftime("%Y-%m-%d %H:%M")
    data = f"{row.data_bytes / 2**20:.2f}"
    return [where, *map(str, numbers), data, newest]
