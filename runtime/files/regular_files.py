"""Reading files that the user names: regular ones, as reading a pipe may block and a device may have no end."""

from __future__ import annotations

import errno
import json
import stat
from pathlib import Path
from typing import Any

_MIB = 1 << 20


def check_regular(path: Path) -> None:
    """Make sure that a path is no pipe, device or socket. What is not there, and folders, are left to the reader.

    Raises:
        OSError: if it is one, or ``-`` where no file has that name.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        if str(path) == "-":
            raise OSError(errno.EINVAL, "standard input is not read, write it to a file first", "-") from None
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "it is no regular file, copy its content to one", str(path))


def read_text(path: Path, most_bytes: int) -> str:
    """The text of a file, which may be a pipe.

    Raises:
        OSError: if it cannot be read.
        ValueError: if it is longer than ``most_bytes``, or not UTF-8.
    """
    with path.open("rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"it is longer than {most_bytes // _MIB} MiB")
    return content.decode("utf-8")


def read_json(path: Path, most_bytes: int) -> Any:
    """What a JSON file holds, which may be a pipe.

    Raises:
        OSError: if it cannot be read.
        ValueError: if it is longer than ``most_bytes``, or not JSON.
    """
    try:
        return json.loads(read_text(path, most_bytes))
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
