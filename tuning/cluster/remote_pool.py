"""A pool that measures on other machines, and otherwise works like any pool here."""

from __future__ import annotations

import itertools
import logging
import queue
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sartor.errors import CompileError, SartorError
from sartor.tuning.cluster.farm import Farm, Order, Yardstick
from sartor.tuning.cluster.parcel import Answer, FileStore, Unreadable, unpack
from sartor.tuning.workers.calls import MEMORY_LIMIT
from sartor.tuning.workers.entry_points import entry_point
from sartor.tuning.workers.pool import Batch, Job, JobResult, JobStatus, WorkerPool
from sartor.tuning.workers.sharing import Turns, is_quiet_now

_LOG = logging.getLogger(__name__)
_QUIET_SECONDS = 60.0


class RemotePool(WorkerPool):
    """Measures on the machines of a farm. All else is done by processes here, or there, if a worker has the compiler.

    Args:
        count: number of processes here.
        folder: for temporary files, and files that come back; it must outlive all results.
        turns: as for ``WorkerPool``.
        farm: measures.
        compiled_there: names of functions whose jobs the farm does too, if one of its machines can.
    """

    measures_elsewhere = True

    def __init__(
        self,
        count: int,
        folder: Path,
        turns: Turns | None,
        farm: Farm,
        compiled_there: Collection[str] = (),
    ) -> None:
        super().__init__(count, memory_limit=MEMORY_LIMIT, env={"TMPDIR": str(folder)}, turns=turns)
        self._farm = farm
        self._compiled_there = compiled_there
        self._files = FileStore(folder / "arrived")
        self._files.folder.mkdir(exist_ok=True)
        self._numbers = itertools.count()
        self._is_fresh = False

    def close(self) -> None:
        super().close()
        self._is_fresh = True

    def at_once(self, function: str) -> int:
        return max(self._farm.compilers, 1) if self._compiles_there(function) else super().at_once(function)

    def _compiles_there(self, function: str) -> bool:
        return function in self._compiled_there and self._farm.compilers > 0

    def is_quiet(self) -> bool:
        (result,) = self._away(entry_point(is_quiet_now), [("quiet", {})], _QUIET_SECONDS, True, None)
        return result.status is JobStatus.OK and bool(result.value)

    def map_unordered(
        self,
        function: str,
        jobs: Iterable[Job],
        timeout: float,
        *,
        quiet: bool = False,
        affinity: Collection[int] | None = None,
        deadline: float | None = None,
    ) -> Iterator[JobResult]:
        if quiet or self._compiles_there(function):
            return self._away(function, jobs, timeout, quiet, deadline)
        return super().map_unordered(function, jobs, timeout, quiet=quiet, affinity=affinity, deadline=deadline)

    def _away(
        self, function: str, jobs: Iterable[Job], timeout: float, measures: bool, deadline: float | None
    ) -> Iterator[JobResult]:
        """Do jobs elsewhere; measurements all on one machine, as their times are compared."""
        with self._batch(function, timeout, deadline, measures=measures, at_home=measures) as batch:
            for name, arguments in jobs:
                batch.add(name, arguments)
            yield from batch.rest()

    @contextmanager
    def batch(self, function: str, timeout: float, deadline: float | None = None) -> Iterator[FarmBatch]:
        with self._batch(function, timeout, deadline, measures=True, at_home=False) as batch:
            yield batch

    @contextmanager
    def _batch(
        self, function: str, timeout: float, deadline: float | None, *, measures: bool, at_home: bool
    ) -> Iterator[FarmBatch]:
        is_fresh = at_home and self._is_fresh
        self._is_fresh = self._is_fresh and not at_home
        order = Order("", function, {}, timeout, _unheard, measures=measures, at_home=at_home, is_fresh=is_fresh)
        batch = FarmBatch(self._farm, order, self._files, self._numbers, deadline)
        try:
            yield batch
        finally:
            batch.drop()
            self._note(batch.others, 0)

    def compare_machines(
        self,
        function: str,
        jobs: Sequence[tuple[str, Mapping[str, Any]]],
        timeout: float,
        seconds: Callable[[Any], float | None],
    ) -> None:
        def seconds_in(answer: Answer) -> float | None:
            is_ok = answer.result.status is JobStatus.OK
            return seconds(unpack(answer.value, self._files, self._files.folder)) if is_ok else None

        self._farm.measure_likeness(
            [Yardstick(Order(name, function, arguments, timeout, _unheard), seconds_in) for name, arguments in jobs]
        )

    def _note(self, others: float, processors: int) -> None:
        if others and not self.others:
            message = (
                "other programs took %.1f processors of a worker's machine while it measured: times are less exact"
            )
            _LOG.warning(message, others)
        self.others = max(self.others, others)
        self._others_lately = max(self._others_lately, others)


class FarmBatch(Batch):
    """Jobs of one function on the machines of a farm; they begin at once.

    Args:
        farm: does them.
        order: what all of them have in common.
        files: where files that come back are put.
        numbers: make names distinct in the farm.
        deadline: by ``time.monotonic()``; None for none.
    """

    is_early = True

    def __init__(
        self, farm: Farm, order: Order, files: FileStore, numbers: Iterator[int], deadline: float | None
    ) -> None:
        self._farm = farm
        self._order = order
        self._files = files
        self._numbers = numbers
        self._deadline = deadline
        self._names: dict[str, str] = {}
        self._arrived: queue.SimpleQueue[tuple[str, JobResult | SartorError, Answer | None]] = queue.SimpleQueue()
        self.others = 0.0

    def add(self, name: str, arguments: Mapping[str, Any], weight: float = 1.0) -> None:
        own = f"{next(self._numbers)} {name}"
        self._farm.add(
            replace(
                self._order,
                name=own,
                arguments=arguments,
                weight=weight,
                ended=lambda *ended: self._arrived.put(ended),
            )
        )
        # Not before: what is refused is not waited for.
        self._names[own] = name

    def ready(self) -> list[JobResult]:
        results = []
        while not self._arrived.empty():
            results.append(self._taken(*self._arrived.get()))
        return results

    def rest(self) -> Iterator[JobResult]:
        while self._names:
            left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
            try:
                ended = self._arrived.get(timeout=left)
            except queue.Empty:
                return
            yield self._taken(*ended)

    def _taken(self, name: str, result: JobResult | SartorError, answer: Answer | None) -> JobResult:
        own = self._names.pop(name)
        if isinstance(result, SartorError):
            raise result
        self.others = max(self.others, result.others)
        is_ok = answer is not None and result.status is JobStatus.OK
        value = unpack(answer.value, self._files, self._files.folder) if answer is not None and is_ok else None
        if isinstance(value, Unreadable):
            raise CompileError(f"a worker cannot read what it is sent: {value.reason}; install there what is here")
        return replace(result, job_id=own, value=value)

    def drop(self) -> None:
        """Drop what has not ended."""
        for name in self._names:
            self._farm.withdraw(name)


def _unheard(name: str, result: JobResult | SartorError, answer: Answer | None) -> None:
    """Nobody asks for this end."""
