"""Deleting from the tuning database what is old, of elsewhere, ended in some way, or is too much."""

from __future__ import annotations

import itertools
import sqlite3
from dataclasses import dataclass

from sartor.tuning.records.measurement import Status
from sartor.tuning.store.sqlite import file
from sartor.tuning.store.sqlite.rows import CONTENT_BYTES, KEY_COLUMNS

_KEY = ", ".join(KEY_COLUMNS)
# Measurements of the same moment go in the order of their keys, so that the same database is pruned alike.
_DELETE_OLDEST = f"""
    DELETE FROM measurements WHERE ({_KEY}) IN (
        SELECT {_KEY} FROM (
            SELECT {_KEY}, sum(bytes) OVER (ORDER BY created, {_KEY}) - bytes AS older_bytes
            FROM (SELECT {_KEY}, created, {CONTENT_BYTES} AS bytes FROM measurements)
        ) WHERE older_bytes < ?
    )
"""
_CONTENT = f"SELECT coalesce(sum({CONTENT_BYTES}), 0) FROM measurements"


@dataclass(frozen=True)
class Pruning:
    """What to delete: measurements that meet every condition, then the oldest until the file is small enough.

    Attributes:
        created_before: seconds since the epoch, or None.
        hardware_other_than: a ``Hardware.key``, or None.
        runtime_other_than: a ``runtime_key``, or None.
        statuses: how measurements ended; none for any.
        max_bytes: size of the file to get below, or None. An empty database is a few KiB and stays.

    Raises:
        ValueError: nothing of it is given.
    """

    created_before: float | None = None
    hardware_other_than: str | None = None
    runtime_other_than: str | None = None
    statuses: tuple[Status, ...] = ()
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.max_bytes is None and not self.conditions:
            raise ValueError("pruning needs a condition")

    @property
    def conditions(self) -> dict[str, tuple[float | str, ...]]:
        """SQL conditions and their values."""
        every = {
            "created < ?": self.created_before,
            "hardware != ?": self.hardware_other_than,
            "runtime != ?": self.runtime_other_than,
        }
        found: dict[str, tuple[float | str, ...]] = {sql: (each,) for sql, each in every.items() if each is not None}
        if self.statuses:
            marks = ", ".join("?" * len(self.statuses))
            found[f"status IN ({marks})"] = tuple(each.value for each in self.statuses)
        return found


def prune(connection: sqlite3.Connection, pruning: Pruning) -> int:
    """Delete what ``pruning`` says, shrink the file, and return how many measurements went."""
    removed = _delete(connection, pruning.conditions) if pruning.conditions else 0
    _shrink(connection)
    if pruning.max_bytes is not None:
        removed += _delete_oldest(connection, pruning.max_bytes)
    return removed


def size_bytes(connection: sqlite3.Connection) -> int:
    """Bytes of the database, without its write-ahead log."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    return int(pages * page_size)


def _delete(connection: sqlite3.Connection, conditions: dict[str, tuple[float | str, ...]]) -> int:
    with file.transaction(connection):
        sql = f"DELETE FROM measurements WHERE {' AND '.join(conditions)}"
        return connection.execute(sql, tuple(itertools.chain(*conditions.values()))).rowcount


def _delete_oldest(connection: sqlite3.Connection, max_bytes: int) -> int:
    """Content is deleted in proportion to what is too much, until it fits or nothing is left.

    How many pages rows take is known only once they are packed anew; it is right within a page after two or
    three rounds.
    """
    removed = 0
    while (size := size_bytes(connection)) > max_bytes:
        with file.transaction(connection):
            (content,) = connection.execute(_CONTENT).fetchone()
            excess = content * (size - max_bytes) / size
            deleted = connection.execute(_DELETE_OLDEST, (excess,)).rowcount
        if deleted == 0:
            break
        removed += deleted
        _shrink(connection)
    return removed


def _shrink(connection: sqlite3.Connection) -> None:
    """Give back what deleted rows took: SQLite keeps free pages, and the log what was written last."""
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
