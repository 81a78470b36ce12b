"""The tuning database: all measurements, in one SQLite file.

One process writes and commits each measurement at once, so a killed process loses nothing that ``put`` stored. A power
cut may lose the last writes, but not the file (write-ahead log, ``synchronous=NORMAL``). Measurements of other
machines, versions and models are stored side by side, as their keys differ.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, replace
from pathlib import Path
from typing import Self

from sartor.codegen.ir.variants.renamed import former_names
from sartor.errors import UsageError
from sartor.tuning.records.hardware import host, processor_of
from sartor.tuning.records.measurement import Measurement, MeasurementKey, runtime_key
from sartor.tuning.store import merge, prune, summary
from sartor.tuning.store.merge import Merged
from sartor.tuning.store.prune import Pruning
from sartor.tuning.store.sqlite import errors, file
from sartor.tuning.store.sqlite.errors import NewerStoreError, StoreUnavailableError, explained
from sartor.tuning.store.sqlite.file import BUSY_TIMEOUT
from sartor.tuning.store.sqlite.rows import INSERT_OR_REPLACE, KEY_COLUMNS, SELECT, SELECT_ONE, Row, from_row, to_row
from sartor.tuning.store.summary import SummaryRow

_LOG = logging.getLogger(__name__)


class Store:
    """Stores measurements by key; to be used from one thread.

    Every method raises StoreUnavailableError (a UsageError) if the file is locked or read-only or the disk is full,
    and UsageError if its content is damaged.
    """

    def __init__(self, connection: sqlite3.Connection, name: str, persistent: bool) -> None:
        self._connection = connection
        self._name = name
        self._transient: dict[MeasurementKey, Measurement] = {}
        self._goes_on = False
        self.persistent = persistent
        """Whether measurements are kept after the process ends."""
        self.hardware = host().key
        """The machines whose measurements are used and added: this one's kind, unless others measure."""

    @classmethod
    def open(
        cls, path: Path, *, busy_timeout: float = BUSY_TIMEOUT, goes_on: bool = False, hardware: str | None = None
    ) -> Store:
        """Open the database at ``path`` for tuning; create it if it does not exist.

        Tuning does not fail because of the database: one of a newer version is ignored, and one that cannot be written
        is only read; ``persistent`` is then false. Both are logged as warnings, and so is a database that has
        measurements of other machines or versions only.

        Args:
            path: the file.
            busy_timeout: seconds to wait for other processes.
            goes_on: whether a database that cannot be created, and what cannot be written later, for want of room on
                the disk as well, is only remembered until the store is closed, and a warning is logged, as the work is
                worth more than its record.
            hardware: key of the machines that measure; None for this one.

        Raises:
            UsageError: the file is not Sartor's or is damaged. It is not changed.
            StoreUnavailableError: the file does not exist and cannot be created, or cannot be read, unless the work
                goes on.
        """
        try:
            store = cls.open_to_write(path, busy_timeout=busy_timeout)
        except NewerStoreError as error:
            _LOG.warning("%s; it is ignored, and what is measured now is not kept", error)
            store = cls.in_memory()
            store.hardware = hardware or store.hardware
            return store
        except StoreUnavailableError as error:
            store = cls._without_writing(path, busy_timeout, error, goes_on=goes_on)
        store.hardware = hardware or store.hardware
        try:
            store._warn_if_of_elsewhere()
        except StoreUnavailableError as error:
            # What SQLite needs to read beside writers may find no room on a disk that had some for opening.
            store.close()
            store = cls._without_writing(path, busy_timeout, error, goes_on=goes_on)
        except UsageError:
            store.close()
            raise
        store._goes_on = goes_on
        return store

    @classmethod
    def _without_writing(cls, path: Path, busy_timeout: float, error: StoreUnavailableError, *, goes_on: bool) -> Store:
        """A copy of a database that cannot be written, or an empty one if it cannot be read either."""
        try:
            if not os.path.isfile(path):
                raise error
            store = cls._copy_of(path, busy_timeout)
            _LOG.warning("%s; it is only read, and what is measured now is not kept", error)
        except StoreUnavailableError:
            if not goes_on:
                raise
            store = cls.in_memory()
            _LOG.warning("%s; what is measured now is not kept", error)
        return store

    @classmethod
    def open_to_write(cls, path: Path, *, busy_timeout: float = BUSY_TIMEOUT) -> Store:
        """Open the database at ``path``; create it and its folders, or migrate an older one.

        Raises:
            UsageError: the file is not Sartor's, is damaged, or of a newer version. It is not changed.
            StoreUnavailableError: it cannot be written.
        """
        file.check_file(path, busy_timeout)
        return cls(file.open_for_writing(path, busy_timeout), str(path), persistent=True)

    @classmethod
    def open_to_read(cls, path: Path, *, busy_timeout: float = BUSY_TIMEOUT) -> Store:
        """Open the database at ``path``, or a copy of it if it cannot be written.

        Raises:
            UsageError: the file is not Sartor's, is damaged, or of a newer version.
            StoreUnavailableError: it cannot be read.
        """
        if os.path.isfile(path) and not os.path.getsize(path):
            # Nothing is written into a file that may be meant for something else.
            return cls(file.memory(), str(path), persistent=False)
        try:
            return cls.open_to_write(path, busy_timeout=busy_timeout)
        except StoreUnavailableError:
            if not os.path.isfile(path):
                raise
            return cls._copy_of(path, busy_timeout)

    @classmethod
    def in_memory(cls) -> Store:
        """An empty store without a file; closing it deletes its content."""
        return cls(file.memory(), ":memory:", persistent=False)

    @classmethod
    def _copy_of(cls, path: Path, busy_timeout: float) -> Store:
        copy = file.private_copy(path, busy_timeout)
        with explained(str(path)):
            file.migrate(copy, str(path))
        return cls(copy, str(path), persistent=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Every ``put`` is already committed."""
        with explained(self._name):
            self._connection.close()

    def get(self, key: MeasurementKey) -> Measurement | None:
        """The measurement of ``key``, or None.

        A transient failure is returned only if nothing else is known and this object got it: it is not stored in the
        file, so that the next process tries again.
        """
        keys = (key, *(replace(key, variant=name) for name in former_names(key.variant)))
        with explained(self._name):
            rows = (self._connection.execute(SELECT_ONE, astuple(key)).fetchone() for key in keys)
            row = next((row_of_key for row_of_key in rows if row_of_key is not None), None)
        measurement = None if row is None else self._measurement(row)
        return self._transient.get(key) if measurement is None or measurement.is_transient else measurement

    def get_many(self, keys: Iterable[MeasurementKey]) -> Mapping[MeasurementKey, Measurement]:
        """The measurements of ``keys``, in their order; keys without a measurement are missing."""
        measurements = ((key, self.get(key)) for key in keys)
        return {key: measurement for key, measurement in measurements if measurement is not None}

    def measurements(self, *, here_only: bool = False) -> Iterator[Measurement]:
        """All measurements in the order of keys, or only those of this machine and these versions."""
        where = " WHERE hardware = ? AND runtime = ?" if here_only else ""
        values = (self.hardware, runtime_key()) if here_only else ()
        with explained(self._name):
            for row in self._connection.execute(f"{SELECT}{where} ORDER BY {', '.join(KEY_COLUMNS)}", values):
                yield self._measurement(row)

    def measured_since(self, created: float) -> list[Measurement]:
        """Measurements that were made after a time in seconds since the epoch, in their order."""
        with explained(self._name):
            rows = self._connection.execute(f"{SELECT} WHERE created > ? ORDER BY created", (created,)).fetchall()
        return [self._measurement(row) for row in rows]

    def put(self, measurement: Measurement) -> None:
        """Store a measurement durably in place of one with the same key. Transient failures are kept in memory."""
        self.put_many([measurement])

    def put_many(self, measurements: Iterable[Measurement]) -> None:
        """Store measurements in one transaction: all of them or, on an error, none.
        Transient failures are kept in memory until the store is closed.
        """
        listed = list(measurements)
        self._transient |= {measurement.key: measurement for measurement in listed if measurement.is_transient}
        rows = [to_row(measurement) for measurement in listed if not measurement.is_transient]
        try:
            self._insert(rows)
        except StoreUnavailableError as error:
            if not (self._goes_on and self.persistent):
                raise
            self._go_on_in_memory()
            _LOG.warning("%s; what is measured from now on is not kept", error)
            self._insert(rows)

    def _insert(self, rows: Sequence[Row]) -> None:
        with self._transaction():
            self._connection.executemany(INSERT_OR_REPLACE, rows)

    def _go_on_in_memory(self) -> None:
        """Leave the file for a copy, which is empty if the file cannot even be read any more."""
        copy = file.memory()
        with suppress(UsageError), explained(self._name):
            self._connection.backup(copy)
        with suppress(sqlite3.Error):
            self._connection.close()
        self._connection, self.persistent = copy, False

    def merge(self, paths: Sequence[Path]) -> tuple[Merged, ...]:
        """Merge the measurements of other databases and exports: all of them or, on an error, none.

        Of two measurements with the same key, one that did not time out or run out of memory is preferred, then the
        newer. So the result does not depend on the order of merging. Rows that are not measurements are skipped.

        Raises:
            UsageError: a file cannot be read, is something else, too large, damaged or of a newer version, or none of
                its rows is a measurement.
        """
        with self._transaction():
            return merge.merge(self._connection, paths, time.time())

    def summary(self) -> tuple[SummaryRow, ...]:
        """A row for each machine, runtime, backend and thread count, sorted by these."""
        try:
            with explained(self._name):
                return summary.summarize(self._connection)
        except ValueError as error:
            raise errors.damaged(self._name, str(error)) from error

    @property
    def size_bytes(self) -> int:
        """Bytes of the database, without its write-ahead log."""
        with explained(self._name):
            return prune.size_bytes(self._connection)

    def prune(self, pruning: Pruning) -> int:
        """Delete measurements and shrink the file; returns the number of deleted measurements."""
        with explained(self._name):
            return prune.prune(self._connection, pruning)

    def scratch_copy(self) -> Store:
        """A temporary copy, to try changes on; closing it deletes it."""
        copy = file.scratch()
        with explained(self._name):
            self._connection.backup(copy)
        return Store(copy, self._name, persistent=False)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with explained(self._name), file.transaction(self._connection):
            yield

    def _measurement(self, row: Row) -> Measurement:
        try:
            return from_row(row)
        except ValueError as error:
            raise errors.damaged(self._name, str(error)) from error

    def _warn_if_of_elsewhere(self) -> None:
        with explained(self._name):
            own = {self.hardware, processor_of(self.hardware)}
            elsewhere = all(summary.is_of_elsewhere(self._connection, hardware) for hardware in own)
        if elsewhere:
            _LOG.warning(
                "the tuning database %s holds measurements of other machines or versions only; they are ignored, and "
                "this machine measures for itself",
                self._name,
            )
