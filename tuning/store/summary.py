"""Summarises the tuning database by machine, versions, backend and threads."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

from sartor.tuning.records.hardware import host, processor_of
from sartor.tuning.records.measurement import runtime_key
from sartor.tuning.store.sqlite.rows import CONTENT_BYTES

_SUMMARY = f"""
    SELECT hardware, runtime, backend, threads, count(DISTINCT task), count(DISTINCT variant), count(*),
           sum(status != 'ok'), sum(foreign_load > 0), min(created), max(created), sum({CONTENT_BYTES})
    FROM measurements
    GROUP BY hardware, runtime, backend, threads
    ORDER BY hardware, runtime, backend, threads
"""
# Its first columns; numbers follow.
_TEXTS = 3
_ANY = "SELECT EXISTS (SELECT 1 FROM measurements)"
_ANY_OF_HERE = "SELECT EXISTS (SELECT 1 FROM measurements WHERE hardware = ? AND runtime = ?)"


@dataclass(frozen=True)
class SummaryRow:
    """A summary of the measurements with one machine, runtime, backend and thread count.

    Attributes:
        hardware, runtime, backend, threads: as in ``MeasurementKey``.
        tasks, variants: numbers of distinct ones.
        measurements: number of rows; ``failures`` of them are not OK.
        under_load: number of rows that were measured while other programs took processors.
        oldest, newest: seconds since the epoch.
        data_bytes: bytes of the rows' content, without SQLite's overhead.
    """

    hardware: str
    runtime: str
    backend: str
    threads: int
    tasks: int
    variants: int
    measurements: int
    failures: int
    under_load: int
    oldest: float
    newest: float
    data_bytes: int

    @property
    def used_here(self) -> bool:
        """Whether a compilation on this machine with these versions uses the rows."""
        return (processor_of(self.hardware), self.runtime) == (host().key, runtime_key())


def summarize(connection: sqlite3.Connection) -> tuple[SummaryRow, ...]:
    """A row for each machine, runtime, backend and thread count, sorted by these."""
    return tuple(_checked(row) for row in connection.execute(_SUMMARY))


def _checked(row: tuple[Any, ...]) -> SummaryRow:
    texts, numbers = row[:_TEXTS], row[_TEXTS:]
    if not all(isinstance(text, str) for text in texts) or not all(
        isinstance(number, int | float) for number in numbers
    ):
        raise ValueError("a row holds values of other types")
    return SummaryRow(*row)


def is_of_elsewhere(connection: sqlite3.Connection, hardware: str) -> bool:
    """Whether there are measurements, but none of this hardware and these versions."""
    (some,) = connection.execute(_ANY).fetchone()
    (here,) = connection.execute(_ANY_OF_HERE, (hardware, runtime_key())).fetchone()
    return bool(some and not here)
