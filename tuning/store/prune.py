"""Deletes measurements from the tuning database by age, hardware, versions, status or size."""

from __future__ import annotations

import itertools
import sqlite3
from dataclasses import dataclass

from sartor.tuning.records.hardware import BEFORE_GPU
from sartor.tuning.records.measurement import Status
from sartor.tuning.store.sqlite import file
from sartor.tuning.store.sqlite.rows import CONTENT_BYTES, KEY_COLUMNS

_KEY = ", ".join(KEY_COLUMNS)
# Measurements of the same time are deleted in the order of their keys, so that pruning is deterministic.
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
    """What to delete: first measurements that meet all conditions, then the oldest until the file is small enough.

    Attributes:
        created_before: delete older ones; seconds since the epoch, or None.
        hardware_other_than: delete those of other machines; a ``Hardware.key``, or None.
        runtime_other_than: delete those of other versions; a ``runtime_key``, or None.
        statuses: delete those with these statuses; empty for all statuses.
        max_bytes: the file's size limit, or None. An empty database takes a few KiB.

    Raises:
        ValueError: none of them is given.
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
        every = {"created < ?": self.created_before, "runtime != ?": self.runtime_other_than}
        parameters_by_sql: dict[str, tuple[float | str, ...]] = {
            sql: (parameter,) for sql, parameter in every.items() if parameter is not None
        }
        if (own := self.hardware_other_than) is not None:
            parameters_by_sql["hardware != ? AND instr(hardware, ?) != 1"] = own, own + BEFORE_GPU
        if self.statuses:
            marks = ", ".join("?" * len(self.statuses))
            parameters_by_sql[f"status IN ({marks})"] = tuple(status.value for status in self.statuses)
        return parameters_by_sql


def prune(connection: sqlite3.Connection, pruning: Pruning) -> int:
    """Delete measurements and shrink the file; returns the number of deleted measurements."""
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
    """Delete the oldest measurements until the file is small enough or empty; returns their number.
    The pages that rows take are known only after VACUUM. So each round deletes content in proportion to the excess; the
    size is right to a page after two or three rounds.
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
    """Free the space of deleted rows: SQLite keeps free pages, and the log keeps the last writes."""
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
