"""Processor time of each file of tests, that of the processes it starts included, told at the end of a run.

Beside other programs a test takes any time, but nearly the same time of processors.
"""

from __future__ import annotations

import os
import resource
import time
from collections import defaultdict
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest

_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")
# Of the fields behind a process's name: its parent, and its time with that of the children that it waited for.
_PARENT, _TIMES = 1, slice(11, 15)
_TOLD, _KEY = 20, "processor_seconds"


class ProcessorTimes:
    """Collects the seconds of each file, in each of the processes that share the tests."""

    def __init__(self) -> None:
        self.seconds = defaultdict[str, float](float)
        self._before = used_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, bool, bool]:
        """What was used since the last file ended belongs to the one that ends."""
        result = yield
        if nextitem is None or nextitem.path != item.path:
            now = used_seconds()
            self.seconds[item.path.relative_to(item.config.rootpath).as_posix()] += now - self._before
            self._before = now
        return result

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand over what one of several processes found."""
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output[_KEY] = dict(self.seconds)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object, error: object) -> None:
        """Take over what one of several processes found, unless it was ended before."""
        for path, seconds in getattr(node, "workeroutput", {}).get(_KEY, {}).items():
            self.seconds[path] += seconds

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Tell what took most."""
        total, most = sum(self.seconds.values()), sorted(self.seconds, key=lambda path: -self.seconds[path])
        terminalreporter.write_sep("=", f"{total:.0f} s of processors, most of it in")
        for path in most[:_TOLD]:
            terminalreporter.write_line(f"{self.seconds[path]:7.1f} s {path}")


def used_seconds() -> float:
    """Seconds of processors of this process, of those that it waited for, and of those below it that run."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime + _running(os.getpid())


def _running(root: int) -> float:
    children, seconds = defaultdict[int, list[int]](list), dict[int, float]()
    for entry in _PROC.iterdir() if _PROC.is_dir() else ():
        # It may end meanwhile.
        with suppress(OSError):
            if entry.name.isdecimal():
                fields = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
                children[int(fields[_PARENT])].append(int(entry.name))
                seconds[int(entry.name)] = sum(map(int, fields[_TIMES])) / _TICKS
    total, left = 0.0, [*children[root]]
    while left:
        process = left.pop()
        total += seconds[process]
        left += children[process]
    return total
