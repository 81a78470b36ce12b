"""What a thread does behind the first inference of a session: it fills huge pages, and lets another plan take over.

In NNV12 (section 3.5) the kernels of later inferences are prepared behind the first one. Here weights are packed when a
network is compiled, so that only where they lie remains to be changed, and which plan runs.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from weakref import WeakSet

from sartor.runtime.mapping.background import Background
from sartor.runtime.mapping.free_memory import free_bytes
from sartor.runtime.mapping.heap import extend_heap
from sartor.runtime.mapping.huge_pages import BLOCK, move_to_huge_pages
from sartor.runtime.mapping.mapped_file import MappedFile
from sartor.runtime.mapping.notes import note
from sartor.runtime.mapping.reading import Step, step

# Without an inference to wait for, huge pages are filled after this time.
_IDLE_SECONDS = 0.25
_MOST_WAITS = 40
# Priority (niceness) of a thread that works for later inferences, beside what the user runs: it gets a quarter of a
# processor that it shares, so that it neither holds an inference up nor waits for ever.
_LATER = 6
# What a plan that takes over leaves free of the machine's memory; fewer bytes than these are not worth asking for it.
_LEFT_FREE = 64 << 20
_FEW = 8 << 20
# A module's code and directory end it; they commonly take less.
_CODE = 512 << 10
# To stop takes as long as a block.
_MOST_SECONDS = 1.0

Prepare = Callable[[], None]
"""What is done in the thread, before huge pages are filled."""

_RUNNING: WeakSet[Overlap] = WeakSet()


@atexit.register
def _stop_all() -> None:
    """End the threads before the interpreter does, which would leave what they use behind."""
    for overlap in list(_RUNNING):
        overlap.stop(is_last=True)


def _forget_threads() -> None:
    for overlap in list(_RUNNING):
        overlap.forget_thread()


os.register_at_fork(after_in_child=_forget_threads)


class Takeover:
    """Which of a file's two plans runs: that for the first inference, until the one for later inferences is prepared.

    To prepare it is to bring the weights into memory that only it reads, which the reader of the file does behind those
    of the first plan. Functions, code and memory for activations are there when the module is loaded. So nothing has to
    be done between two inferences but to call another function. What only the other reads is moved to huge pages
    first.
    """

    def __init__(self, label: str, first: str, later: str, added_bytes: int) -> None:
        """Begin with the plan for the first inference.

        Args:
            label: names the file in messages.
            first: the function that runs the first inference.
            later: that of the plan that takes over.
            added_bytes: of the weights that only the latter reads.
        """
        self._label = label
        self._first = first
        self._later = later
        self._added = added_bytes
        self._has_run = False
        self._prepared = threading.Event()

    def entry(self) -> str:
        """The function that the next run calls: the first one's, until there was one and the other is prepared."""
        chosen = self._later if self._has_run and self._prepared.is_set() else self._first
        self._has_run = True
        return chosen

    def prepare(self) -> None:
        """Let the other plan take over, now that its weights were read, unless memory is too small for both.

        Then the first plan goes on: what its runs read would be dropped from memory by what the other reads, and the
        other way round.
        """
        added = self._added
        free = free_bytes() if added > _FEW else None
        if free is not None and free < added + _LEFT_FREE:
            note(
                __name__,
                "%s keeps to its plan for first inferences: later ones need %d MiB more, and %d MiB are free",
                self._label,
                added >> 20,
                free >> 20,
            )
            return
        self._prepared.set()

    def order(self, files: Sequence[MappedFile]) -> None:
        """Let what only the other plan reads, which lies at the end of the last file, be moved before the rest."""
        for file in files[-1:]:
            file.move_first(max(0, file.size - _CODE - self._added))

    def settle(self) -> None:
        """Leave the first inference's plan out, as somebody has waited for the other."""
        self._has_run = True


class Overlap:
    """Moves mapped files to huge pages when they were read and an inference has run.

    A session tells it when inferences begin and end.
    """

    def __init__(self, files: Sequence[MappedFile], *, huge_pages: bool, prepare: Prepare | None = None) -> None:
        """Extend the heap if huge pages are wanted, and begin to wait.

        Args:
            files: in the order in which they are needed.
            huge_pages: whether they are moved to huge pages.
            prepare: is called once the files were read.
        """
        self._heap = extend_heap() if huge_pages else None
        self._moves: list[Step] = []
        self._files = tuple(files)
        self._huge_pages = huge_pages
        self._prepare = prepare
        self._runs = 0
        self._ran = threading.Event()
        self._stopped = False
        self._thread: Background | None = None
        if not self._is_own or (self._heap is not None and not self._heap.is_present):
            _RUNNING.add(self)
            self._thread = Background(self._work)
        if self._thread is None or not self._thread.has_begun:
            self._do_without()

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
        return [reading_step for file in self._files for reading_step in file.reading.steps] + self._moves

    def stop(self, *, is_last: bool = False) -> None:
        """Do no more, and wait until nothing is done, but not for ever.

        Args:
            is_last: whether nobody else needs the files, which are then not read on.
        """
        self._stopped = True
        for file in self._files if is_last else ():
            file.reading.stop()
        self.settle(_MOST_SECONDS)

    def shared(self) -> Overlap:
        """What another session of the same files tells of its inferences; it moves nothing, as this one does."""
        for file in self._files:
            file.keep_from_writers(waits=False)
        return Overlap(self._files, huge_pages=False)

    def forget_thread(self) -> None:
        """In a forked process: the thread stayed with the parent, and may have held the lock of what it waits for."""
        self._ran = threading.Event()

    def settle(self, timeout: float | None = None) -> bool:
        """Wait until the files are where they stay; returns whether all is memory of the process."""
        self._ran.set()
        if self._thread is not None:
            self._thread.wait(timeout)
        return self._is_own

    @property
    def _is_own(self) -> bool:
        return all(file.is_own for file in self._files)

    def _work(self) -> None:
        if self._heap is not None:
            self._heap.bring_in()
        for file in self._files:
            file.reading.wait()
        if self._prepare is not None and not self._stopped:
            self._prepare()
        if self._huge_pages and not self._is_own:
            self._wait_for_inference()
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LATER)
            self._fill()
        for file in self._files:
            file.let_write()

    def _do_without(self) -> None:
        """Nothing is left to move, or no thread could be started to move it: runs read the files where they are."""
        if self._prepare is not None:
            self._prepare()
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
                    with step(self._moves, "move", file.next_part(BLOCK)[1]):
                        is_moved = move_to_huge_pages(file)
