"""Sharing a machine with others: taking turns with other compilations, and noticing who else computes."""

from __future__ import annotations

import fcntl
import functools
import logging
import math
import os
import platform
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

from sartor.tuning.workers.beside.stopping import current
from sartor.tuning.workers.disturbances import computed_by_groups

_LOG = logging.getLogger(__name__)
_STAT = Path("/proc/stat")
_PROCESSOR = "cpu"
# Positions in a processor's line: in programs, nice ones, in the kernel, in interrupts, and taken by a hypervisor.
_BUSY = (0, 1, 2, 5, 6, 7)
_STOLEN = 7
_POLL_SECONDS = 0.1
# A holder that was stopped, or that others always get ahead of, must not hold up the rest for ever.
_PATIENCE = 600.0
_LEAST_SECONDS = 1.0
_NOTICEABLE = 0.25
_CROWDED = 0.85
# Of the time in which programs wanted a processor: measured times are longer by that part.
_NOTICEABLE_THEFT = 0.1


class Turns:
    """Turns on a machine, by a lock on a file, which the system releases however its holder ends.

    Who measures is alone; others work side by side. What a process does within its turn is part of it, in all threads.

    Args:
        path: the file; where it cannot be made there are no turns.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._end = math.inf
        self._depth = 0
        self._told: set[str] = set()
        self._is_hopeless = False

    @contextmanager
    def awaited_until(self, end: float) -> Iterator[None]:
        """No turn is waited for after ``end``, by ``time.monotonic()``, as after that of a time budget."""
        before, self._end = self._end, end
        try:
            yield
        finally:
            self._end = before

    @contextmanager
    def turn(self, *, alone: bool, deadline: float) -> Iterator[None]:
        """A turn, waited for until ``deadline``, by ``time.monotonic()``, or for some minutes.

        Once these minutes were in vain, later turns are not waited for: the holder was probably stopped.
        """
        lock = None if self._depth else self._file()
        try:
            if lock is not None:
                self._wait(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH, deadline)
            with self._deeper():
                yield
        finally:
            if lock is not None:
                os.close(lock)

    def place_beside(self) -> Callable[[], None] | None:
        """A turn among those that work side by side, taken at once; returns what ends it, None if somebody measures and
        there is time to wait for that.
        """
        lock = self._file()
        if lock is None:
            return _nothing
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return _nothing if time.monotonic() >= self._end else None
        except OSError:
            # A file system without locks.
            os.close(lock)
            return _nothing
        return functools.partial(os.close, lock)

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def _file(self) -> int | None:
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        return None

    def _wait(self, lock: int, kind: int, deadline: float) -> None:
        end = time.monotonic() + (0.0 if self._is_hopeless else _PATIENCE)
        while True:
            try:
                fcntl.flock(lock, kind | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                pass
            except OSError:
                # A file system without locks.
                return
            now = time.monotonic()
            if now >= self._end:
                return
            self._tell("another compilation is at work on this machine: they take turns, so that both measure well")
            if now >= min(deadline, end):
                self._is_hopeless = now >= end
                self._tell("another compilation does not end its turn: what is measured now may be too slow")
                return
            with current().waiting():
                time.sleep(_POLL_SECONDS)

    def _tell(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            _LOG.warning(message)


@functools.cache
def machine_turns() -> Turns:
    """Turns with other compilations of this user on this machine; several machines may share a home."""
    return Turns(turns_file())


def turns_file() -> Path:
    """The file by which all programs of this user on this machine take turns."""
    return user_cache_path("sartor") / f"turns-{platform.node()}.lock"


@dataclass(frozen=True)
class Load:
    """Processor time on the processors that this process may use, up to a moment, in seconds.

    Attributes:
        moment: by ``time.monotonic()``.
        busy: of all programs, and taken by the hypervisor.
        own: of this process and those that it started.
        processors: how many there are.
        stolen: the part of ``busy`` that the hypervisor took. It takes from who computes, however many processors are
            idle.
    """

    moment: float
    busy: float
    own: float
    processors: int
    stolen: float = 0.0

    @staticmethod
    def now(groups: Collection[int]) -> Load | None:
        """Until now, None if the system does not say; ``groups`` are the process groups that this process started."""
        try:
            allowed = os.sched_getaffinity(0)
            lines = [line.split() for line in _STAT.read_text(encoding="ascii").splitlines()]
            lines = [line for line in lines if _processor(line) in allowed]
            second = os.sysconf("SC_CLK_TCK")
            busy = sum(int(line[1 + field]) for line in lines for field in _BUSY) / second
            stolen = sum(int(line[1 + _STOLEN]) for line in lines) / second
            own = sum(os.times()[:4]) + computed_by_groups(groups)
            return Load(time.monotonic(), busy, own, len(lines), stolen)
        except (AttributeError, OSError, ValueError, IndexError):
            return None

    def others_since(self, before: Load) -> float:
        """How many processors others took on average, if that left too few, or a hypervisor took; else 0."""
        seconds = self.moment - before.moment
        if seconds < _LEAST_SECONDS or not self.processors:
            return 0.0
        busy, stolen = self.busy - before.busy, self.stolen - before.stolen
        others = (busy - (self.own - before.own)) / seconds
        if busy / (seconds * self.processors) > _CROWDED and others > _NOTICEABLE:
            return others
        return stolen / seconds if stolen > _NOTICEABLE_THEFT * busy else 0.0


class Watch:
    """Tells after each of several measurements how many processors others took during it.

    The last second at least is looked at, as processor time is counted in hundredths of a second.

    Args:
        is_on: whether to look at all.
    """

    def __init__(self, is_on: bool) -> None:
        self._is_on = is_on
        self._loads: list[Load] = []

    def others(self, groups: Collection[int]) -> float:
        """Processors that others took since the last call, or the last second, as ``Load.others_since`` tells.

        Args:
            groups: the process groups that this process started.
        """
        now = Load.now(groups) if self._is_on else None
        if now is None:
            return 0.0
        old = [load for load in self._loads if now.moment - load.moment >= _LEAST_SECONDS]
        # Of older ones only the newest is of use.
        self._loads = [*old[-1:], *(load for load in self._loads if load not in old), now]
        return now.others_since(old[-1]) if old else 0.0


def _nothing() -> None:
    """There is no turn to end."""


def is_quiet_now() -> bool:
    """Whether others leave enough processors, in the second that this takes."""
    before = Load.now([])
    time.sleep(_LEAST_SECONDS)
    after = Load.now([])
    return before is None or after is None or not after.others_since(before)


def _processor(line: list[str]) -> int | None:
    """The number of the processor that a line is about."""
    number = (line[0] if line else "").removeprefix(_PROCESSOR)
    return int(number) if number.isdecimal() else None
