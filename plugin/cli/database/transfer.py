"""``sartor db export`` and ``sartor db import``: move measurements between machines."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from sartor.cli.database.options import DatabaseOption, existing_database
from sartor.cli.options.common import JsonOption
from sartor.cli.output.messages import printable
from sartor.cli.output.terminal import show_json, show_table
from sartor.config import default_database
from sartor.errors import UsageError
from sartor.publishing import check_apart, check_writable, publish
from sartor.settings.quantities import show_size
from sartor.tuning.records.measurement import Measurement
from sartor.tuning.store.export import is_export, write_export
from sartor.tuning.store.merge import Merged
from sartor.tuning.store.sqlite.file import database_files
from sartor.tuning.store.store import Store
from sartor.tuning.store.table import is_table, write_table
from sartor.workspace import workspace

_LOG = logging.getLogger(__name__)
_STDOUT = "-"
Writer = Callable[[TextIO, Iterable[Measurement]], int]
"""Writes measurements to a file; returns their number."""


def export_measurements(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.jsonl", help="Where to, - for stdout; an earlier export is replaced.")
    ],
    csv: Annotated[
        bool,
        typer.Option("--csv", help="As a table for other tools, which cannot be imported: times instead of samples."),
    ] = False,
    here: Annotated[bool, typer.Option("--here", help="Only what this machine, with these versions, uses.")] = False,
    tuning_db: DatabaseOption = None,
    json: JsonOption = False,
) -> None:
    """Write measurements as text, one a line, to be imported elsewhere or kept in git."""
    database, write = existing_database(tuning_db), write_table if csv else write_export
    if str(file) == _STDOUT:
        _export_to_stdout(database, here, json, write)
        return
    _check_target(file, database, is_table if csv else is_export)
    with workspace() as folder:
        whole = folder / "export"
        with Store.open_to_read(database) as store, whole.open("w", encoding="utf-8", newline="") as text:
            written = write(text, store.measurements(here_only=here))
        publish(whole, file)
    size = file.stat().st_size
    if json:
        show_json({"path": str(file), "measurements": written, "size_bytes": size})
    else:
        print(f"{written} measurements in '{file}', {show_size(size)}")


def _export_to_stdout(database: Path, here: bool, json: bool, write: Writer) -> None:
    if json:
        raise UsageError("--json tells on stdout what became of a file; leave it out where the export goes to stdout")
    with Store.open_to_read(database) as store:
        write(sys.stdout, store.measurements(here_only=here))


def _check_target(file: Path, database: Path, is_earlier: Callable[[Path], bool]) -> None:
    """Refuse to overwrite a file that is not an earlier export, as it was probably named by mistake."""
    check_writable(file)
    if file.exists() and file.stat().st_size > 0 and not is_earlier(file):
        raise UsageError(f"'{file}' is no earlier export and was left as it is: name another file")
    check_apart({"the export": file}, [("the tuning database", path) for path in database_files(database)])


def import_measurements(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Exports, or tuning databases.")],
    tuning_db: DatabaseOption = None,
    json: JsonOption = False,
) -> None:
    """Take in measurements of other machines or users; of the same measured twice the newer stays."""
    database = tuning_db or default_database()
    if not database.exists():
        # What cannot be imported leaves no empty database.
        with Store.in_memory() as trial:
            trial.merge(files)
    with Store.open_to_write(database) as store:
        merged = store.merge(files)
    for file in merged:
        _warn_of_skipped(file)
    if json:
        show_json({"path": str(database), "files": [_json_merged(file) for file in merged]})
    else:
        columns = ("file", "new", "newer than known", "known", "skipped")
        show_table(f"into {database}", columns, [_row(file) for file in merged], right=range(1, 5))


def _warn_of_skipped(merged: Merged) -> None:
    first = merged.first_skipped
    if first is not None:
        where = f"the first is {first.where} ({printable(first.reason)})"
        _LOG.warning("%d rows of '%s' are no measurements and were skipped, %s", merged.skipped, merged.path, where)


def _json_merged(merged: Merged) -> dict[str, Any]:
    return {**asdict(merged), "path": str(merged.path)}


def _row(merged: Merged) -> list[str]:
    return [str(merged.path), *map(str, (merged.added, merged.replaced, merged.unchanged, merged.skipped))]
