"""Temporary folders and files, which are removed even if the process is killed.

Each is locked (``flock``) by the process that uses it. A free lock shows that the process was killed. The next process
that needs temporary files removes such folders and files, and nothing else: no folder without a lock of Sartor in it,
none of another user, none behind a link. If a process was killed before it had its lock, its empty folder, or its lock
without a final name, is removed when it is old.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import gc
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
_VARIABLES = ("TMPDIR", "TEMP", "TMP")
# IREE has a shell start the linker without quoting names, and LLVM replaces ``%`` in them.
_NOT_TAKEN = re.compile(r"[\s%$&;|<>()`\"'\\*?]")
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors that say that there is no room: of a disk, of what a user may have, or for what a file may become."""
_TODO = {errno.ENOENT: "make it", **dict.fromkeys(FULL, "make some")}
_OWN_FOLDER = re.compile(rf"{_PREFIX}[0-9a-f]{{{2 * _TOKEN_BYTES}}}")
# Only milliseconds pass between the creation of a folder and its lock.
_OLD_SECONDS = 3600.0
_OWN: dict[Path, int] = {}
"""Paths to remove, with the process that does it; processes forked from it do not."""


class TemporaryFolderError(OSError):
    """The folder for temporary files cannot be used; ``strerror`` says which that is and what to do."""


def temporary_folder() -> Path:
    """Where temporary files lie: in the folder that the environment names, usable or not, else in the system's."""
    named = next((folder for name in _VARIABLES if (folder := os.environ.get(name))), None)
    try:
        return Path(named or tempfile.gettempdir()).absolute()
    except FileNotFoundError as error:
        raise TemporaryFolderError(
            error.errno, f"{error.strerror}: set TMPDIR to a folder that can be written"
        ) from None


def check_temporary_name() -> None:
    """Make sure that IREE can link in the temporary folder, and ONNX Runtime read files there.

    Raises:
        TemporaryFolderError: if its name has a character that does not reach the linker, or is not UTF-8.
    """
    folder = temporary_folder()
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise TemporaryFolderError(
            errno.EINVAL,
            f"the folder for temporary files '{folder}' has a name that is not UTF-8: set TMPDIR to another folder",
        ) from None
    if match := _NOT_TAKEN.search(str(folder)):
        raise TemporaryFolderError(
            errno.EINVAL,
            f"the folder for temporary files '{folder}' has {match[0]!r} in its name, "
            "which IREE's linker does not take: set TMPDIR to another folder",
        )


@contextmanager
def _said(folder: Path, only: tuple[int, ...] | None = None) -> Iterator[None]:
    """Name the temporary folder in errors, in those with one of these numbers."""
    try:
        yield
    except OSError as error:
        elsewhere = error.filename is not None and not Path(os.fsdecode(error.filename)).is_relative_to(folder)
        if elsewhere or isinstance(error, TemporaryFolderError) or (only is not None and error.errno not in only):
            raise
        todo = _TODO.get(error.errno or 0, "let it be written")
        why = "has no room left" if error.errno in FULL else f"cannot be used ({error.strerror})"
        text = f"the folder for temporary files '{folder}' {why}: {todo}, or set TMPDIR to a folder elsewhere"
        raise TemporaryFolderError(error.errno, text) from error


@contextmanager
def workspace() -> Iterator[Path]:
    """A new folder in the temporary folder. It is removed at the end; folders of dead processes are removed too.

    Raises:
        TemporaryFolderError: if it cannot be created, or there is no room for what is written to it.
    """
    parent = temporary_folder()
    _sweep_folders(parent)
    folder = parent / f"{_PREFIX}{secrets.token_hex(_TOKEN_BYTES)}"
    # Registered before it is created, so that it is removed at the process's end after any interrupt.
    _OWN[folder] = os.getpid()
    lock: int | None = None
    try:
        with _said(parent):
            folder.mkdir(mode=0o700)
            lock = _locked_file(folder / _LOCK)
        with _said(parent, only=FULL):
            yield folder
    finally:
        _release(folder)
        if lock is not None:
            os.close(lock)


@contextmanager
def partial_file(folder: Path, suffix: str = "") -> Iterator[Path]:
    """A new empty file in a folder, to be renamed when it is complete; otherwise it is removed at the end.

    Files that dead processes left in the folder are removed too.

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
    """Create a file that is locked before it gets its name."""
    new = path.with_name(path.name + _UNLOCKED)
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        # On a file system without locks, files of killed processes are kept.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(new, path)
    except BaseException:
        os.close(descriptor)
        new.unlink(missing_ok=True)
        raise
    return descriptor


def _remove(path: Path) -> None:
    """Remove a folder or file. A folder's lock is removed last, so that a later process can remove what remains."""
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
    """Remove a path of this process, if it still exists: it may have been renamed."""
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
    """Remove a folder that never got its lock: it is empty, or has a lock without its final name."""
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
    """Remove a path if its lock exists and is free."""
    with suppress(OSError):
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            result = os.fstat(descriptor)
            if stat.S_ISREG(result.st_mode) and os.path.samestat(result, lock.lstat()):
                _remove(path)
        finally:
            os.close(descriptor)


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Collect no garbage meanwhile, in any thread, unless another caller ends earlier."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
