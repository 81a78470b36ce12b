"""``sartor db prune``: delete measurements by age, machine, version, status or size of the file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from sartor.cli.database.options import DatabaseOption, day, existing_database, place
from sartor.cli.options.common import JsonOption
from sartor.cli.output.terminal import show_json, show_table
from sartor.errors import UsageError
from sartor.settings.quantities import read_age, read_size, show_size
from sartor.tuning.records.hardware import host
from sartor.tuning.records.measurement import Status, runtime_key
from sartor.tuning.store.prune import Pruning
from sartor.tuning.store.store import Store
from sartor.tuning.store.summary import SummaryRow

# Transient failures are never stored.
_STATUSES = tuple(status.value for status in Status if not status.is_transient)


@dataclass(frozen=True)
class _Pruned:
    """Summaries of the database before and after pruning."""

    removed: int
    size_before: int
    size: int
    before: tuple[SummaryRow, ...]
    after: tuple[SummaryRow, ...]


def prune(
    older_than: Annotated[str | None, typer.Option(metavar="AGE", help="Delete what is older: 90d, 12h, 4w.")] = None,
    other_machines: Annotated[bool, typer.Option("--other-machines", help="Delete what others measured.")] = False,
    other_versions: Annotated[
        bool, typer.Option("--other-versions", help="Delete what other versions of IREE measured.")
    ] = False,
    status: Annotated[
        list[str] | None,
        typer.Option(metavar="STATUS", help=f"Delete what ended so, repeatable: {', '.join(_STATUSES)}."),
    ] = None,
    max_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Then delete the oldest until the file is smaller: 100MiB.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
    tuning_db: DatabaseOption = None,
    json: JsonOption = False,
) -> None:
    """Delete measurements that meet all conditions given, and shrink the file."""
    pruning = _pruning(older_than, other_machines, other_versions, status or [], max_size)
    database = existing_database(tuning_db)
    if dry_run:
        with Store.open_to_read(database) as store, store.scratch_copy() as copy:
            pruned = _prune(copy, pruning)
    else:
        with Store.open_to_write(database) as store:
            pruned = _prune(store, pruning)
    (_show_json if json else _show)(database, pruned, dry_run)


def _pruning(
    older_than: str | None, other_machines: bool, other_versions: bool, statuses: list[str], max_size: str | None
) -> Pruning:
    if older_than is None and max_size is None and not (other_machines or other_versions or statuses):
        raise UsageError(
            "say what to delete: --older-than 90d, --max-size 100MiB, --status timeout, --other-machines or "
            "--other-versions"
        )
    return Pruning(
        created_before=None if older_than is None else time.time() - read_age("--older-than", older_than),
        hardware_other_than=host().key if other_machines else None,
        runtime_other_than=runtime_key() if other_versions else None,
        statuses=tuple(map(_read_status, dict.fromkeys(statuses))),
        max_bytes=None if max_size is None else read_size("--max-size", max_size),
    )


def _read_status(text: str) -> Status:
    if text not in _STATUSES:
        raise UsageError(f"--status '{text}' is none, expected one of {', '.join(_STATUSES)}")
    return Status(text)


def _prune(store: Store, pruning: Pruning) -> _Pruned:
    before, size = store.summary(), store.size_bytes
    removed = store.prune(pruning)
    return _Pruned(removed, size, store.size_bytes, before, store.summary())


def _show_json(database: Path, pruned: _Pruned, dry_run: bool) -> None:
    groups = [
        {
            "hardware": row.hardware,
            "runtime": row.runtime,
            "backend": row.backend,
            "threads": row.threads,
            "removed": removed,
            "kept": row.measurements - removed,
        }
        for row, removed in _removed(pruned)
    ]
    sizes = {"size_bytes_before": pruned.size_before, "size_bytes": pruned.size}
    show_json({"path": str(database), "dry_run": dry_run, "removed": pruned.removed, **sizes, "rows": groups})


def _show(database: Path, pruned: _Pruned, dry_run: bool) -> None:
    verb = "would be removed" if dry_run else "removed"
    sizes = f"{show_size(pruned.size_before)} -> {show_size(pruned.size)}"
    title = f"{database}: {pruned.removed} measurements {verb}, {sizes}"
    rows = [
        [
            place(row.hardware, row.runtime, row.backend, row.threads),
            str(removed),
            str(row.measurements - removed),
            day(row.oldest),
        ]
        for row, removed in _removed(pruned)
    ]
    if rows:
        show_table(title, ("measured on", verb, "kept", "oldest"), rows, right=(1, 2))
    else:
        print(title)


def _removed(pruned: _Pruned) -> Sequence[tuple[SummaryRow, int]]:
    """Summary rows that lost measurements, with the number lost."""
    left = {_place(row): row.measurements for row in pruned.after}
    lost = [(row, row.measurements - left.get(_place(row), 0)) for row in pruned.before]
    return [(row, removed) for row, removed in lost if removed]


def _place(row: SummaryRow) -> tuple[str, str, str, int]:
    return row.hardware, row.runtime, row.backend, row.threads
