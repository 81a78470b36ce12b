"""Translates SQLite's errors to messages that tell the user what to do about the tuning database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sartor.errors import SystemRefusedError, UsageError

_ELSEWHERE = "name another file with --tuning-db"
_PRIMARY_CODE = 0xFF

_UNAVAILABLE = {
    sqlite3.SQLITE_BUSY: f"is locked by another process: wait for it to finish, or {_ELSEWHERE}",
    sqlite3.SQLITE_LOCKED: f"is locked by another process: wait for it to finish, or {_ELSEWHERE}",
    sqlite3.SQLITE_READONLY: f"cannot be written: change its permissions, or {_ELSEWHERE}",
    sqlite3.SQLITE_PERM: f"cannot be written: change its permissions, or {_ELSEWHERE}",
    sqlite3.SQLITE_CANTOPEN: f"cannot be opened: change its permissions, or {_ELSEWHERE}",
    sqlite3.SQLITE_FULL: f"does not fit on the disk any more: free some space, or {_ELSEWHERE}",
    sqlite3.SQLITE_IOERR: f"cannot be read or written: check the disk, or {_ELSEWHERE}",
    sqlite3.SQLITE_PROTOCOL: f"is on a file system that cannot lock files: {_ELSEWHERE}",
}


class StoreUnavailableError(UsageError):
    """The database is perhaps valid, but cannot be read or written now."""


class StoreFullError(StoreUnavailableError):
    """The disk has no room for what the database should take in."""

    exit_code = SystemRefusedError.exit_code


class NewerStoreError(UsageError):
    """The database was written by a later Sartor."""


def unavailable(path: str, what: str) -> StoreUnavailableError:
    """The error for a database at ``path`` that cannot be used; ``what`` completes the sentence with the reason."""
    return StoreUnavailableError(f"the tuning database {path} {what}; {_ELSEWHERE}")


def foreign(path: str) -> UsageError:
    """The error for a file that Sartor did not write."""
    return UsageError(f"{path} is not a Sartor tuning database and was left as it is: {_ELSEWHERE}")


def not_importable(path: str) -> UsageError:
    """The error for a file that cannot be merged."""
    return UsageError(f"'{path}' is neither a tuning database nor measurements that 'sartor db export' wrote")


def damaged(path: str, detail: str) -> UsageError:
    """The error for a damaged tuning database; ``detail`` describes the damage."""
    return UsageError(
        f"the tuning database {path} is damaged ({_in_one_line(detail)}) and was left as it is: "
        f"move it away, restore a copy, or {_ELSEWHERE}"
    )


def _in_one_line(verdict: str) -> str:
    """A check's verdict, which begins with a line that only names the database."""
    lines = [line.strip() for line in verdict.splitlines() if line.strip()]
    return "; ".join(lines[1:] if len(lines) > 1 and lines[0].startswith("***") else lines)


def newer(path: str, version: int, known: int) -> NewerStoreError:
    """The error for a database of a later Sartor: its ``version``, and the latest ``known`` one."""
    return NewerStoreError(
        f"the tuning database {path} has version {version}, this Sartor knows versions up to {known}: "
        f"update Sartor, or {_ELSEWHERE}"
    )


@contextmanager
def explained(path: str) -> Iterator[None]:
    """Translate SQLite's errors inside the block to errors about the database at ``path``.

    Raises:
        StoreUnavailableError: the file is locked, read-only or unreadable.
        StoreFullError: the disk is full.
        UsageError: the content is damaged.
    """
    try:
        yield
    except sqlite3.ProgrammingError:
        raise
    except UnicodeDecodeError as error:
        # SQLite repeats in its messages what it finds in the file.
        raise damaged(path, "it holds text that is not UTF-8") from error
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & _PRIMARY_CODE
        if code in _UNAVAILABLE:
            kind = StoreFullError if code == sqlite3.SQLITE_FULL else StoreUnavailableError
            raise kind(f"the tuning database {path} {_UNAVAILABLE[code]} ({error})") from error
        raise damaged(path, str(error)) from error
