"""Threads that work beside a session, and whose start nobody waits for."""

from __future__ import annotations

import _thread
import os
from collections.abc import Callable


class Background:
    """A thread that does one thing, and keeps no process alive.

    ``threading.Thread.start`` returns when the new thread runs, which needs a free processor and the interpreter's
    lock: loading a model would wait for each of its helpers, on a busy machine for a time slice.
    """

    def __init__(self, work: Callable[[], object]) -> None:
        """Begin to work, or do not: ``has_begun`` says whether the process may have another thread."""
        self._process = os.getpid()
        self._working = _thread.allocate_lock()
        self._working.acquire()
        self._ident: int | None = None
        try:
            self._ident = _thread.start_new_thread(self._do, (work,))
        except RuntimeError:
            # A limit of the system or a container, or an interpreter that another program embeds without threads.
            self._working.release()

    @property
    def has_begun(self) -> bool:
        """Whether the thread was started; without one, the work is never done."""
        return self._ident is not None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the work is done, at most some seconds; returns whether it is, or never will be.

        It never will in a process that was forked meanwhile, as threads stay with the parent; nor while the thread
        itself waits for it.
        """
        if os.getpid() != self._process or _thread.get_ident() == self._ident:
            return True
        if self._working.acquire(timeout=-1 if timeout is None else timeout):
            self._working.release()
            return True
        return False

    def _do(self, work: Callable[[], object]) -> None:
        try:
            work()
        finally:
            self._working.release()
