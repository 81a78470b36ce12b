"""Merges measurements of other databases and of exports into the tuning database.

The files are untrusted. Databases are copied and only the copy is read: its schema must be the tuning database's,
nothing in it is executed, and every row is checked.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sartor.errors import UsageError
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.store.export import read_export
from sartor.tuning.store.sqlite import errors, file, schema
from sartor.tuning.store.sqlite.errors import explained
from sartor.tuning.store.sqlite.rows import COLUMNS, INSERT, KEY_COLUMNS, SELECT, VALUE_COLUMNS, Row, to_row, unpack
from sartor.tuning.store.table import is_table
from sartor.tuning.store.untrusted import Skipped, read_values

LARGEST_FILE = 1 << 30
"""Size limit of an imported file in bytes."""

_LONGEST_VALUE = 4 << 20
# Older versions recorded starved and killed jobs with these statuses.
_WEAK = ", ".join(f"'{status.value}'" for status in (Status.TIMEOUT, Status.OUT_OF_MEMORY))
_RANK = f"({{0}}.status NOT IN ({_WEAK}), {{0}}.foreign_load = 0, {{0}}.created)"
_UPSERT = (
    f"{INSERT} ON CONFLICT ({', '.join(KEY_COLUMNS)}) DO UPDATE SET "
    f"{', '.join(f'{column} = excluded.{column}' for column in VALUE_COLUMNS)} "
    f"WHERE {_RANK.format('excluded')} > {_RANK.format('measurements')}"
)
_COUNT = "SELECT count(*) FROM measurements"


@dataclass(frozen=True)
class Merged:
    """The result of merging one file.

    Attributes:
        path: the file.
        added: number of measurements with new keys.
        replaced: number of measurements that replaced older ones with the same key.
        unchanged: number of measurements that were not taken: the database has one as new or newer, or with a more
            definite status, or undisturbed by other programs, or they are transient failures.
        skipped: number of rows that are not measurements.
        first_skipped: the first of them, or None.
    """

    path: Path
    added: int
    replaced: int
    unchanged: int
    skipped: int
    first_skipped: Skipped | None


def merge(connection: sqlite3.Connection, paths: Iterable[Path], now: float) -> tuple[Merged, ...]:
    """Merge the files' measurements; must be called within a transaction.

    Raises:
        UsageError: a file cannot be read, is something else, too large, damaged or of a newer version, or none of its
            rows is a measurement.
    """
    return tuple(_merge_one(connection, path, now) for path in paths)


class _Checked:
    """Iterates over the valid rows of one file, and counts valid and skipped rows."""

    def __init__(self, path: Path, now: float) -> None:
        self._path = path
        self._now = now
        self.accepted = 0
        self.skipped = 0
        self.first_skipped: Skipped | None = None

    def __iter__(self) -> Iterator[Row]:
        for record in _read(self._path, self._now):
            if isinstance(record, Skipped):
                self.skipped += 1
                self.first_skipped = self.first_skipped or record
            else:
                self.accepted += 1
                if not record.is_transient:
                    yield to_row(record)


def _merge_one(connection: sqlite3.Connection, path: Path, now: float) -> Merged:
    before, changes = _count(connection), connection.total_changes
    rows = _Checked(path, now)
    connection.executemany(_UPSERT, iter(rows))
    first = rows.first_skipped
    if first is not None and rows.accepted == 0:
        raise UsageError(f"'{path}' holds no measurement: {first.where} is none ({first.reason}), nor are the others")
    added = _count(connection) - before
    replaced = connection.total_changes - changes - added
    return Merged(path, added, replaced, rows.accepted - added - replaced, rows.skipped, first)


def _count(connection: sqlite3.Connection) -> int:
    (count,) = connection.execute(_COUNT).fetchone()
    return int(count)


def _read(path: Path, now: float) -> Iterator[Measurement | Skipped]:
    try:
        if not path.is_file():
            raise UsageError(f"'{path}' is not there" if not path.exists() else f"'{path}' is not a file")
        if path.stat().st_size > LARGEST_FILE:
            raise UsageError(f"'{path}' is larger than {LARGEST_FILE >> 20} MiB: prune it before it is imported")
        if file.is_tuning_database(path):
            yield from _read_database(path, now)
        elif is_table(path):
            raise UsageError(f"'{path}' is a table, and tables cannot be imported: export without --csv")
        else:
            yield from read_export(path, now)
    except OSError as error:
        raise UsageError(f"'{path}' cannot be read: {error.strerror}") from error


def _read_database(path: Path, now: float) -> Iterator[Measurement | Skipped]:
    file.check_file(path)
    with explained(str(path)), closing(file.private_copy(path)) as copy:
        _check_schema(copy, path)
        file.migrate(copy, str(path))
        copy.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
        # Text that is not UTF-8 must reach the check of its row instead of raising here.
        copy.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        for number, row in enumerate(copy.execute(SELECT), 1):
            yield _checked(row, f"row {number}", now)


def _check_schema(copy: sqlite3.Connection, path: Path) -> None:
    """Refuse views, triggers and computed columns, which would execute code of the file."""
    objects = copy.execute("SELECT type, name FROM sqlite_master WHERE name NOT LIKE 'sqlite_stat%'").fetchall()
    columns = copy.execute("PRAGMA table_xinfo(measurements)").fetchall()
    if set(objects) != schema.OBJECTS or any(hidden for *_, hidden in columns):
        raise errors.not_importable(str(path))


def _checked(row: Row, where: str, now: float) -> Measurement | Skipped:
    values = dict(zip(COLUMNS, row, strict=True))
    try:
        samples = {name: unpack(values[name]) for name in ("samples", "baseline_samples")}
    except ValueError as error:
        return Skipped(where, str(error))
    return read_values({**values, **samples}, where, now)
