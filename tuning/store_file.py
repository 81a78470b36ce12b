"""Opening the tuning database's file: whose it is, whether it is sound, which version it has."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from sartor.errors import UsageError
from sartor.tuning import store_errors, store_schema
from sartor.tuning.store_errors import StoreUnavailableError, explained

_HEADER_BYTES = 100
_APPLICATION_ID_AT = 68


def check_file(path: Path, busy_timeout: float) -> None:
    """Raise if what is at ``path`` is not a sound tuning database, before anything could write to it."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except FileNotFoundError:
        return
    except IsADirectoryError as error:
        raise UsageError(f"the tuning database {path} is a folder: name a file with --tuning-db") from error
    except OSError as error:
        raise store_errors.unavailable(str(path), f"cannot be read ({error.strerror})") from error
    if not header:
        return
    application_id = int.from_bytes(header[_APPLICATION_ID_AT : _APPLICATION_ID_AT + 4], "big")
    if not header.startswith(b"SQLite format 3\0") or application_id != store_schema.APPLICATION_ID:
        raise store_errors.foreign(str(path))
    # What keeps a reader out (a journal to roll back, a folder without write access) is mended or reported by
    # the writer that comes next.
    with (
        suppress(StoreUnavailableError),
        explained(str(path)),
        closing(_connect(path, "ro", busy_timeout)) as probe,
    ):
        (verdict,) = probe.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise store_errors.damaged(str(path), verdict)


def _connect(path: Path, mode: str, busy_timeout: float = 0.0) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=busy_timeout, isolation_level=None)


def open_for_writing(path: Path, busy_timeout: float) -> sqlite3.Connection:
    """Connect to the database at ``path``, created or brought up to date.

    Raises:
        StoreUnavailableError: it cannot be written.
        UsageError: it comes from a newer version.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise store_errors.unavailable(str(path), f"cannot be created ({error.strerror})") from error
    with explained(str(path)):
        connection = _connect(path, "rwc", busy_timeout)
        try:
            migrate(connection, str(path))
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
        except (sqlite3.Error, UsageError):
            connection.close()
            raise
    return connection


def migrate(connection: sqlite3.Connection, name: str) -> None:
    """Bring the tables to the current version, in one transaction.

    The first time this runs before the write-ahead log is switched on, so that the application id is in the
    file itself from the first commit on.
    """
    connection.execute("PRAGMA trusted_schema = OFF")
    known = len(store_schema.MIGRATIONS)
    with transaction(connection):
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > known:
            raise store_errors.newer(name, version, known)
        for statement in (s for step in store_schema.MIGRATIONS[version:] for s in step):
            connection.execute(statement)
        if version < known:
            connection.execute(f"PRAGMA application_id = {store_schema.APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {known}")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit what the block writes, or nothing of it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def memory() -> sqlite3.Connection:
    """An empty database without a file."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection, ":memory:")
    return connection


def copy_into_memory(path: Path) -> sqlite3.Connection:
    """What can be read of the database at ``path``, in a database without a file."""
    copy = sqlite3.connect(":memory:", isolation_level=None)
    # A log cannot be opened in a folder without write access; an immutable file is read without one.
    for mode in ("ro", "ro&immutable=1"):
        with suppress(sqlite3.Error), closing(_connect(path, mode)) as source:
            source.backup(copy)
            break
    migrate(copy, str(path))
    return copy
