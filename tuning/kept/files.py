"""Files that are kept for later compilations: opened safely, and removed when others need the room."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

SUFFIX = ".kept"

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def opened(path: Path) -> BinaryIO:
    """A file, not where a link leads.

    Raises:
        OSError: if it cannot be opened.
    """
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")


def is_only_ours(file: BinaryIO) -> bool:
    """Whether nobody else can have written a file."""
    status = os.fstat(file.fileno())
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & _WRITABLE_BY_OTHERS


def files_in(folder: Path, beginning: str = "") -> list[Path]:
    """The kept files of a folder whose names begin so; none if there is no folder.

    None either if it lies in one that is not ours to look into, as where HOME is another user's.
    """
    with suppress(OSError):
        return [*folder.glob(f"{beginning}*{SUFFIX}")]
    return []


def make_room(folder: Path, size: int, limit: int) -> None:
    """Make a folder if there is none, and remove the files that were not used for longest, until there is room for so
    many bytes.

    Raises:
        OSError: if a folder cannot be made, or a file not be removed.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = []
    for path in files_in(folder):
        # Another compilation may have removed it.
        with suppress(OSError):
            status = path.lstat()
            files.append((status.st_mtime, path, status.st_size))
    taken = sum(bytes_ for _, _, bytes_ in files)
    for _, path, bytes_ in sorted(files):
        if taken + size <= limit:
            return
        path.unlink(missing_ok=True)
        taken -= bytes_
