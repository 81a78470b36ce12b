"""Temporary folders and files that are gone afterwards, whatever happens to the process.

Each is locked (``flock``) by the process that works in it, so that what a killed one left is known by its lock being
free. The next to need a place for temporary files removes that, and nothing else: no folder without a lock of ours in
it, none that is another user's, none behind a link. What a process was killed over before it had its lock is removed
when it is old: empty folders of ours, and locks that have not got their names.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "sartor-"
_PARTIAL = ".sartor-part-"
_LOCK = ".sartor-lock"
_UNLOCKED = ".new"
_TOKEN_BYTES = 8
_OWN_FOLDER = re.compile(rf"{_PREFIX}[0-9a-f]{{{2 * _TOKEN_BYTES}}}")
# Between the making of something and its lock there are milliseconds.
_OLD_SECONDS = 3600.0
_OWN: dict[Path, int] = {}
"""What has to be removed, and which process does it: one that was forked from it does not."""


@contextmanager
def workspace() -> Iterator[Path]:
    """A new folder in the system's temporary folder; it is removed at the end, and what dead processes left as well.

    Raises:
        OSError: if it cannot be created.
    """
    parent = Path(tempfile.gettempdir())
    _sweep_folders(parent)
    folder = parent / f"{_PREFIX}{secrets.token_hex(_TOKEN_BYTES)}"
    # Before it is there: wherever an interrupt comes in, it is removed when the process ends.
    _OWN[folder] = os.getpid()
    lock: int | None = None
    try:
        folder.mkdir(mode=0o700)
        lock = _locked_file(folder / _LOCK)
        yield folder
    finally:
        _release(folder)
        if lock is not None:
            os.close(lock)


@contextmanager
def partial_file(folder: Path, suffix: str = "") -> Iterator[Path]:
    """A new empty file in a folder, to be renamed when it is complete; else it is removed at the end.

    What dead processes left in the folder is removed as well.

    Raises:
        OSError: if it cannot be created.
    """
    _sweep_files(folder)
    path = folder / f"{_PARTIAL}{secrets.token_hex(_TOKEN_BYTES)}{suffix}"
    _OWN[path] = os.getpid()
    lock: int | None = None
    try:
        lock = _locked_file(path)
        yield path
    finally:
        _release(path)
        if lock is not None:
            os.close(lock)


def _locked_file(path: Path) -> int:
    """Create a file that is locked from the moment it has its name."""
    new = path.with_name(path.name + _UNLOCKED)
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        # A file system without locks keeps what a killed process leaves.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(new, path)
    except BaseException:
        os.close(descriptor)
        new.unlink(missing_ok=True)
        raise
    return descriptor


def _remove(path: Path) -> None:
    """A folder's lock goes last, so that what cannot be removed now can be later."""
    if path.is_dir() and not path.is_symlink():
        for entry in path.iterdir():
            if entry.name != _LOCK:
                _delete(entry)
        if all(entry.name == _LOCK for entry in path.iterdir()):
            (path / _LOCK).unlink(missing_ok=True)
            path.rmdir()
    else:
        path.unlink(missing_ok=True)
        path.with_name(path.name + _UNLOCKED).unlink(missing_ok=True)


def _release(path: Path) -> None:
    """Remove what this process made; what was renamed meanwhile is not found."""
    if _OWN.get(path) == os.getpid():
        with suppress(OSError):
            _remove(path)
        del _OWN[path]


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


@atexit.register
def _remove_own() -> None:
    for path in [*_OWN]:
        _release(path)


def _sweep_folders(parent: Path) -> None:
    for entry in _named(parent, _PREFIX):
        if entry.is_dir(follow_symlinks=False) and _is_own(entry):
            _remove_if_abandoned(Path(entry.path), Path(entry.path, _LOCK))
            if _OWN_FOLDER.fullmatch(entry.name) and _is_old(entry):
                _remove_unlocked(Path(entry.path))


def _remove_unlocked(folder: Path) -> None:
    """Remove a folder that never got its lock: there is nothing in it, or the lock without its name."""
    new = folder / f"{_LOCK}{_UNLOCKED}"
    with suppress(OSError):
        if [*folder.iterdir()] == [new]:
            _remove_if_abandoned(new, new)
        folder.rmdir()


def _sweep_files(folder: Path) -> None:
    for entry in _named(folder, _PARTIAL):
        is_new = entry.name.endswith(_UNLOCKED)
        if entry.is_file(follow_symlinks=False) and _is_own(entry) and (not is_new or _is_old(entry)):
            _remove_if_abandoned(Path(entry.path), Path(entry.path))


def _named(folder: Path, prefix: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if entry.name.startswith(prefix)]
    except OSError:
        return []


def _is_own(entry: os.DirEntry[str]) -> bool:
    with suppress(OSError):
        return entry.stat(follow_symlinks=False).st_uid == os.geteuid()
    return False


def _is_old(entry: os.DirEntry[str]) -> bool:
    with suppress(OSError):
        return time.time() - entry.stat(follow_symlinks=False).st_mtime > _OLD_SECONDS
    return False


def _remove_if_abandoned(path: Path, lock: Path) -> None:
    """Remove something if its lock is there and nobody holds it."""
    with suppress(OSError):
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = os.fstat(descriptor)
            if stat.S_ISREG(found.st_mode) and os.path.samestat(found, lock.lstat()):
                _remove(path)
        finally:
            os.close(descriptor)
