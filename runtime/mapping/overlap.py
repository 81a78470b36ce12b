"""What a thread does behind the first inference of a session: it fills huge pages.

In NNV12 (section 3.5) the kernels of later inferences are prepared behind the first one. Here weights are packed when a
network is compiled, so that only where they lie remains to be changed.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from weakref import WeakSet

from sartor.runtime.mapping.huge_pages import BLOCK, move_to_huge_pages
from sartor.runtime.mapping.mapped_file import MappedFile
from sartor.runtime.mapping.reading import Step, step

# Without an inference to wait for, huge pages are filled after this time.
_IDLE_SECONDS = 0.25
_MOST_WAITS = 40
# Priority (niceness) of a thread that works for later inferences, beside what the user runs: it gets a quarter of a
# processor that it shares, so that it neither holds an inference up nor waits for ever.
_LATER = 6
# To stop takes as long as a block.
_MOST_SECONDS = 1.0

Prepare = Callable[[], None]
"""What is done in the thread, before huge pages are filled."""

_RUNNING: WeakSet[Overlap] = WeakSet()


@atexit.register
def _stop_all() -> None:
    """End the threads before the interpreter does, which would leave what they use behind."""
    for each in list(_RUNNING):
        each.stop(is_last=True)


class Overlap:
    """Moves mapped files to huge pages when they were read and an inference has run.

    A session tells it when inferences begin and end.
    """

    def __init__(self, files: Sequence[MappedFile], *, huge_pages: bool, prepare: Prepare | None = None) -> None:
        """Begin to wait.

        Args:
            files: in the order in which they are needed.
            huge_pages: whether they are moved to huge pages.
            prepare: is called once the files were read.
        """
        self._moves: list[Step] = []
        self._files = tuple(files)
        self._huge_pages = huge_pages
        self._prepare = prepare
        self._runs = 0
        self._ran = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._work, name="sartor-overlap", daemon=True)
        if not all(file.is_own for file in self._files):
            _RUNNING.add(self)
            self._thread.start()
        elif prepare is not None:
            prepare()

    def begin_run(self) -> None:
        """Make sure that an inference may run.

        Raises:
            UsageError: if a file was changed since it was opened, or is damaged.
        """
        self._runs += 1
        for file in self._files:
            file.check()

    def end_run(self) -> None:
        """Make sure that the inference that has just run read what was opened; huge pages may be filled now.

        Raises:
            UsageError: as ``begin_run``.
        """
        if not self._ran.is_set():
            self._ran.set()
        for file in self._files:
            file.check()

    @property
    def steps(self) -> list[Step]:
        """What was done so far to bring the files into memory."""
        return [each for file in self._files for each in file.reading.steps] + self._moves

    def stop(self, *, is_last: bool = False) -> None:
        """Do no more, and wait until nothing is done, but not for ever.

        Args:
            is_last: whether nobody else needs the files, which are then not read on.
        """
        self._stopped = True
        for file in self._files if is_last else ():
            file.reading.stop()
        self.settle(_MOST_SECONDS)

    def settle(self, timeout: float | None = None) -> bool:
        """Wait until the files are where they stay; returns whether all is memory of the process."""
        self._ran.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)
        return all(file.is_own for file in self._files)

    def _work(self) -> None:
        for file in self._files:
            file.reading.wait()
        if self._prepare is not None and not self._stopped:
            self._prepare()
        if self._huge_pages:
            self._wait_for_inference()
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LATER)
            self._fill()
        for file in self._files:
            file.let_write()

    def _wait_for_inference(self) -> None:
        """Wait until one has run; not long if none runs, nor for ever if one has failed."""
        for _ in range(_MOST_WAITS):
            if self._ran.wait(_IDLE_SECONDS) or not self._runs:
                return

    def _fill(self) -> None:
        """Move all files, one block after another; a file that several sessions share is moved by one of them."""
        for file in self._files:
            with file.moving:
                is_moved = True
                while is_moved and not (self._stopped or file.is_own):
                    with step(self._moves, "move", min(BLOCK, file.size - file.own_bytes)):
                        is_moved = move_to_huge_pages(file)
