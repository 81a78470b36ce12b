"""Opens the tuning database's file: checks that it is Sartor's and not damaged, and migrates older versions."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from weakref import WeakSet

from sartor.errors import UsageError
from sartor.runtime.files.regular_files import check_regular
from sartor.tuning.store.sqlite import errors, schema
from sartor.tuning.store.sqlite.errors import StoreUnavailableError, explained

BUSY_TIMEOUT = 30.0
"""Seconds to wait for another process."""

_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_APPLICATION_ID_AT = 68
_PRIMARY_CODE = 0xFF
_COMPANIONS = ("-journal", "-shm", "-wal")


def is_tuning_database(path: Path) -> bool:
    """Whether the file's header is that of a tuning database; it may be damaged, or of any version."""
    if _is_connected(path):
        return True
    with path.open("rb") as file:
        return _is_ours(file.read(_HEADER_BYTES))


def database_files(path: Path) -> tuple[Path, ...]:
    """The files that SQLite may write for the database at ``path``; only the path of a folder may have no name."""
    if not path.name:
        return (path,)
    return (path, *(path.with_name(path.name + suffix) for suffix in _COMPANIONS))


def _is_ours(header: bytes) -> bool:
    application_id = int.from_bytes(header[_APPLICATION_ID_AT : _APPLICATION_ID_AT + 4], "big")
    return header.startswith(_MAGIC) and application_id == schema.APPLICATION_ID


class _Connection(sqlite3.Connection):
    """A connection that tells which file it has open."""

    file: tuple[int, int] | None = None

    def close(self) -> None:
        """Close it; the file may be opened by other means again."""
        super().close()
        self.file = None


_CONNECTIONS: WeakSet[_Connection] = WeakSet()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_connected(path: Path) -> bool:
    """Whether this process is connected to a file, which then was checked.

    It must not be opened by other means: closing it again would end the locks that SQLite has on it (POSIX), and
    another process would take the log for that of nobody.
    """
    own = _identity(path)
    return own is not None and any(connection.file == own for connection in list(_CONNECTIONS))


def check_file(path: Path, busy_timeout: float = BUSY_TIMEOUT) -> None:
    """Refuse a file that is not a valid tuning database, before anything writes to it. It need not exist.

    Raises:
        UsageError: it is a folder or no regular file, or not Sartor's, or damaged.
        StoreUnavailableError: it cannot be read.
    """
    try:
        check_regular(path)
    except OSError as error:
        raise UsageError(f"the tuning database {path} cannot be read: {error.strerror}") from None
    if _is_connected(path):
        return
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except FileNotFoundError:
        return
    except IsADirectoryError as error:
        raise UsageError(f"the tuning database {path} is a folder: name a file with --tuning-db") from error
    except OSError as error:
        raise errors.unavailable(str(path), f"cannot be read ({error.strerror})") from error
    if not header:
        return
    if not _is_ours(header):
        raise errors.foreign(str(path))
    # Opening the file for writing repairs or reports what prevents reading: a journal to roll back, or a folder
    # without write access.
    with (
        suppress(StoreUnavailableError),
        explained(str(path)),
        closing(_connect(path, "ro", busy_timeout)) as probe,
    ):
        (verdict,) = probe.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise errors.damaged(str(path), verdict)


def _connect(path: Path, mode: str, busy_timeout: float = 0.0) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=busy_timeout, isolation_level=None, factory=_Connection)
    _CONNECTIONS.add(connection)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.file = _identity(path)
    return connection


def open_for_writing(path: Path, busy_timeout: float) -> sqlite3.Connection:
    """Connect to the database at ``path``; create or migrate it.

    Raises:
        StoreUnavailableError: it cannot be written.
        NewerStoreError: it was written by a newer version.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise errors.unavailable(str(path), f"cannot be created ({error.strerror})") from error
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
    """Migrate the tables to the current version, in one transaction; ``name`` is used in errors.

    For a new file this runs before the write-ahead log is switched on, so that the first commit writes the application
    id to the file itself.
    """
    connection.execute("PRAGMA trusted_schema = OFF")
    known = len(schema.MIGRATIONS)
    with transaction(connection):
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > known:
            raise errors.newer(name, version, known)
        for statement in (s for step in schema.MIGRATIONS[version:] for s in step):
            connection.execute(statement)
        if version < known:
            connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {known}")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run the block in a transaction, which is rolled back if the block raises."""
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


def scratch() -> sqlite3.Connection:
    """A connection to an empty temporary database, in memory or, if it becomes large, in a temporary file."""
    return sqlite3.connect("", isolation_level=None)


def private_copy(path: Path, busy_timeout: float = BUSY_TIMEOUT) -> sqlite3.Connection:
    """A temporary copy of the database at ``path``, of the same version; closing it deletes it.

    Raises:
        StoreUnavailableError: it cannot be read.
    """
    copy = scratch()
    with explained(str(path)):
        try:
            _copy(path, "ro", busy_timeout, copy)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & _PRIMARY_CODE in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            # The log cannot be opened in a folder without write access. A file opened as immutable needs none.
            _copy(path, "ro&immutable=1", busy_timeout, copy)
    return copy


def _copy(path: Path, mode: str, busy_timeout: float, copy: sqlite3.Connection) -> None:
    with closing(_connect(path, mode, busy_timeout)) as source:
        # The backup alone would wait for a locked database without limit.
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()
        source.backup(copy)
