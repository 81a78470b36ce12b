"""The tuning database: every measurement ever made, in one SQLite file.

One process writes, each measurement committed at once. A killed process loses nothing that ``put`` returned
from; a power cut may lose the last moments, never the file (write-ahead log, ``synchronous=NORMAL``). Rows of
other machines, versions and models rest beside each other: keys that differ anywhere do not match.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Self

from sartor.tuning import store_errors, store_file
from sartor.tuning.measurement import Measurement, MeasurementKey, Status
from sartor.tuning.store_errors import StoreUnavailableError, explained

_KEY_COLUMNS = tuple(field.name for field in fields(MeasurementKey))
_VALUE_COLUMNS = (
    "status",
    "samples",
    "baseline_samples",
    "error",
    "message",
    "created",
    "packed_bytes",
)
_SELECT = f"SELECT {', '.join(_VALUE_COLUMNS)} FROM measurements WHERE " + " AND ".join(
    f"{column} = ?" for column in _KEY_COLUMNS
)
_INSERT = (
    f"INSERT OR REPLACE INTO measurements ({', '.join(_KEY_COLUMNS + _VALUE_COLUMNS)}) "
    f"VALUES ({', '.join('?' * len(_KEY_COLUMNS + _VALUE_COLUMNS))})"
)
_SUMMARY = """
    SELECT hardware, runtime, backend, threads, count(DISTINCT task), count(DISTINCT variant), count(*),
           sum(status != 'ok'), min(created), max(created),
           sum(length(samples) + length(baseline_samples) + length(message) + length(task) + length(variant)
               + length(source) + length(hardware) + length(runtime) + length(backend))
    FROM measurements
    GROUP BY hardware, runtime, backend, threads
    ORDER BY hardware, runtime, backend, threads
"""


@dataclass(frozen=True)
class SummaryRow:
    """What the store holds for one machine, runtime, backend and thread count.

    Attributes:
        hardware, runtime, backend, threads: as in ``MeasurementKey``.
        tasks, variants: distinct ones.
        measurements: rows; ``failures`` of them are not OK.
        oldest, newest: seconds since the epoch.
        data_bytes: bytes of the rows' content, the file's own overhead excluded.
    """

    hardware: str
    runtime: str
    backend: str
    threads: int
    tasks: int
    variants: int
    measurements: int
    failures: int
    oldest: float
    newest: float
    data_bytes: int


class Store:
    """Measurements by key. Open one with ``Store.open`` or ``Store.in_memory``; use it from one thread.

    Every method raises StoreUnavailableError (a UsageError) if the file is locked, read-only or does not fit
    on the disk, and UsageError if its content is damaged.
    """

    def __init__(self, connection: sqlite3.Connection, name: str, persistent: bool) -> None:
        self._connection = connection
        self._name = name
        self.persistent = persistent
        """Whether what is put outlives the process."""

    @classmethod
    def open(cls, path: Path, *, memory_fallback: bool = False, busy_timeout: float = 30.0) -> Store:
        """Open the database at ``path``, creating it and its folders, or bringing an older one up to date.

        With ``memory_fallback``, a database that cannot be written is read into memory instead, as far as it
        can be read, and ``persistent`` is false. ``busy_timeout`` is in seconds.

        Raises:
            UsageError: the file is not Sartor's, is damaged, or of a newer version. It is left as it is.
            StoreUnavailableError: it cannot be written, and ``memory_fallback`` is false.
        """
        store_file.check_file(path, busy_timeout)
        try:
            return cls(store_file.open_for_writing(path, busy_timeout), str(path), persistent=True)
        except StoreUnavailableError:
            if not memory_fallback:
                raise
            return cls(store_file.copy_into_memory(path), str(path), persistent=False)

    @classmethod
    def in_memory(cls) -> Store:
        """An empty store that is gone when it is closed."""
        return cls(store_file.memory(), ":memory:", persistent=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; nothing is pending."""
        with explained(self._name):
            self._connection.close()

    def get(self, key: MeasurementKey) -> Measurement | None:
        """The latest measurement of ``key``, or None."""
        with explained(self._name):
            row = self._connection.execute(_SELECT, astuple(key)).fetchone()
        return None if row is None else self._measurement(key, row)

    def get_many(self, keys: Iterable[MeasurementKey]) -> Mapping[MeasurementKey, Measurement]:
        """The latest measurement of each of ``keys`` that has one, in the order of ``keys``."""
        found = ((key, self.get(key)) for key in keys)
        return {key: measurement for key, measurement in found if measurement is not None}

    def put(self, measurement: Measurement) -> None:
        """Store ``measurement`` durably, in place of an earlier one with the same key."""
        self.put_many([measurement])

    def put_many(self, measurements: Iterable[Measurement]) -> None:
        """Store all of ``measurements`` in one transaction: all of them or, on an error, none."""
        rows = [_row(measurement) for measurement in measurements]
        with self._transaction():
            self._connection.executemany(_INSERT, rows)

    def summary(self) -> tuple[SummaryRow, ...]:
        """What is stored, by machine, runtime, backend and thread count, in that order."""
        with explained(self._name):
            return tuple(SummaryRow(*row) for row in self._connection.execute(_SUMMARY))

    @property
    def size_bytes(self) -> int:
        """Bytes of the database, without its write-ahead log."""
        with explained(self._name):
            (pages,) = self._connection.execute("PRAGMA page_count").fetchone()
            (page_size,) = self._connection.execute("PRAGMA page_size").fetchone()
        return int(pages * page_size)

    def prune(
        self,
        *,
        created_before: float | None = None,
        hardware_other_than: str | None = None,
        runtime_other_than: str | None = None,
    ) -> int:
        """Delete the measurements that meet every condition given, shrink the file, and return their number.

        ``created_before`` is in seconds since the epoch.

        Raises:
            ValueError: no condition was given.
        """
        conditions = {
            "created < ?": created_before,
            "hardware != ?": hardware_other_than,
            "runtime != ?": runtime_other_than,
        }
        given = {sql: value for sql, value in conditions.items() if value is not None}
        if not given:
            raise ValueError("prune needs a condition")
        with self._transaction():
            removed = self._connection.execute(
                f"DELETE FROM measurements WHERE {' AND '.join(given)}", tuple(given.values())
            ).rowcount
        with explained(self._name):
            self._connection.execute("VACUUM")
        return removed

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with explained(self._name), store_file.transaction(self._connection):
            yield

    def _measurement(self, key: MeasurementKey, row: tuple[object, ...]) -> Measurement:
        status, samples, baseline, *rest = row
        try:
            return Measurement(key, Status(status), _unpack(samples), _unpack(baseline), *rest)  # type: ignore[arg-type]
        except (ValueError, TypeError, struct.error) as error:
            raise store_errors.damaged(self._name, f"measurement of {key.variant}: {error}") from error


def _row(measurement: Measurement) -> tuple[object, ...]:
    return (
        *astuple(measurement.key),
        measurement.status.value,
        _pack(measurement.samples),
        _pack(measurement.baseline_samples),
        measurement.error,
        measurement.message,
        measurement.created,
        measurement.packed_bytes,
    )


def _pack(samples: tuple[float, ...]) -> bytes:
    return struct.pack(f"<{len(samples)}d", *samples)


def _unpack(blob: object) -> tuple[float, ...]:
    if not isinstance(blob, bytes):
        raise TypeError("samples are not a blob")
    return struct.unpack(f"<{len(blob) // 8}d", blob)
