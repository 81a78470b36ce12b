"""Leases: while a process holds one on a file, others that open it for writing or truncate it wait.

Linux has them for the owner of a file (``fcntl``, ``F_SETLEASE``), on its own file systems. A writer waits at most as
long as ``/proc/sys/fs/lease-break-time`` says, 45 s by default.
"""

from __future__ import annotations

import errno
import fcntl
import signal
from contextlib import suppress
from enum import Enum

_TAKE, _NOTIFY = getattr(fcntl, "F_SETLEASE", None), getattr(fcntl, "F_SETSIG", None)


class Lease(Enum):
    """What came of asking for one."""

    HELD = "others wait"
    WRITTEN = "somebody has the file open for writing"
    REFUSED = "the file is another user's, or its system has no leases"


def take(handle: int) -> Lease:
    """Take a lease on a file that is open for reading only. It ends with ``give_back``, or when the file is closed."""
    if _TAKE is None or _NOTIFY is None:
        return Lease.REFUSED
    try:
        # Whoever waits is announced by a signal, which is SIGIO by default and would end the process. This one is
        # ignored unless a program asks for it.
        fcntl.fcntl(handle, _NOTIFY, signal.SIGURG)
        fcntl.fcntl(handle, _TAKE, fcntl.F_RDLCK)
    except OSError as error:
        return Lease.WRITTEN if error.errno == errno.EAGAIN else Lease.REFUSED
    with suppress(OSError):
        fcntl.fcntl(handle, fcntl.F_SETOWN, 0)
    return Lease.HELD


def give_back(handle: int) -> None:
    """Let writers go on."""
    if _TAKE is not None:
        with suppress(OSError):
            fcntl.fcntl(handle, _TAKE, fcntl.F_UNLCK)
