"""Jobs for many machines: a thread places them, follows machines that come and go, and gives back each result once."""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sartor.errors import CompileError, DisturbedError, SartorError
from sartor.tuning.cluster.dispatcher import Attempt, Dispatcher, Job
from sartor.tuning.cluster.likeness import MOST_UNLIKE, Likeness
from sartor.tuning.cluster.link import Link
from sartor.tuning.cluster.machine import Machine
from sartor.tuning.cluster.parcel import Answer, Packed, Parcel, pack, with_contents
from sartor.tuning.workers.process import JobResult
from sartor.tuning.workers.protocol import JobStatus

_LOG = logging.getLogger(__name__)
_TICK_SECONDS = 0.5
_YARDSTICK = "yardstick "
_ENDED = "the thread that follows the workers has ended"
_ALONE = (
    "no worker of this kind is connected; start one and run the command again, which goes on where this ended: all "
    "that was measured is stored"
)

Chosen = Callable[[Machine], bool]
"""Whether a machine takes part."""

Ended = Callable[[str, JobResult | SartorError, Answer | None], None]
"""Called in the farm's thread with the name of a job, its result without the value, and the answer with the value."""


@dataclass(frozen=True)
class Order:
    """Something to be done on some machine.

    Attributes:
        name: distinct.
        function: as for ``WorkerPool.map_unordered``.
        arguments: its keyword arguments.
        timeout: seconds that it may take there.
        ended: told how it ended.
        weight: relative to which its time is expected.
        measures: whether it is a measurement; else a compilation.
        at_home: whether it must run where all such jobs run, as their times are compared.
        is_fresh: whether a new process runs it.
    """

    name: str
    function: str
    arguments: Mapping[str, Any]
    timeout: float
    ended: Ended
    weight: float = 1.0
    measures: bool = True
    at_home: bool = False
    is_fresh: bool = False


@dataclass(frozen=True)
class Yardstick:
    """A job that each machine does before all others, to be compared with the reference.

    Attributes:
        order: what to do; its ``ended`` is not told.
        seconds: the time to compare, from the answer; None if there is none.
    """

    order: Order
    seconds: Callable[[Answer], float | None]


@dataclass
class _Sent:
    """An order, packed, with the files that it names, whose contents ``packed`` may hold already."""

    order: Order
    packed: Packed
    files: Mapping[str, Path]

    def held(self) -> _Sent:
        """The same with the contents, which are then sent to any machine even if the files are gone."""
        return replace(self, packed=with_contents(self.packed, self.files), files={})

    def for_worker(self, known: Collection[str]) -> Packed:
        """The arguments with the contents of the files that a worker does not know.

        Raises:
            OSError: if a file is gone.
        """
        if not self.packed.contents:
            return with_contents(self.packed, self.files, known)
        return replace(self.packed, contents={k: v for k, v in self.packed.contents.items() if k not in known})


@dataclass
class _Role:
    """The machines for one kind of work: measuring, or compiling."""

    dispatcher: Dispatcher = field(default_factory=Dispatcher)
    hosts: dict[str, str] = field(default_factory=dict)
    """Places at which a job can run, each with what it must share: a machine for measurements, a core to compile."""


class Farm:
    """Machines that do jobs, until it is closed.

    Args:
        link: the way to them.
        measures: whether a machine measures.
        compiles: whether a machine compiles.
        patience: seconds for which jobs wait for a machine when there is none.
    """

    def __init__(self, link: Link, measures: Chosen, compiles: Chosen, patience: float = 600.0) -> None:
        self._link = link
        self._chosen = {True: measures, False: compiles}
        self._patience = patience
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._roles = {True: _Role(), False: _Role()}
        self._orders: queue.SimpleQueue[_Sent] = queue.SimpleQueue()
        self._ordering = threading.Lock()
        self._has_ended = False
        self._sent: dict[str, _Sent] = {}
        self._known: dict[str, set[str]] = {}
        self._machines: dict[str, Machine] = {}
        self._likeness = Likeness()
        self._yardsticks: dict[str, tuple[Yardstick, _Sent]] = {}
        self._unmeasured: dict[str, int] = {}
        self._unlike: set[str] = set()
        self._home: str | None = None
        self._alone_since: float | None = None
        self._is_closing = False
        self._has_looked = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sartor-farm", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Leave the machines; what they still do is dropped."""
        self._events.put(self._stop)
        self._thread.join()

    @property
    def compilers(self) -> int:
        """Number of compilations that the machines that are there do at a time."""
        self._has_looked.wait()
        return len(self._roles[False].hosts)

    def add(self, order: Order) -> None:
        """Have something done; its files are read when a machine gets it.

        Raises:
            CompileError: if the thread has ended, by a mistake or as the farm was closed: nobody would do it.
        """
        packed, files = pack(dict(order.arguments))
        with self._ordering:
            if self._has_ended:
                raise CompileError(_ENDED)
            self._orders.put(_Sent(order, packed, files))
            self._events.put(lambda: self._add(self._orders.get()))

    def withdraw(self, name: str) -> None:
        """Drop a job: nothing more is told of it once this returns, unless it is being told."""
        self._events.put(lambda: self._withdraw(name))

    def measure_likeness(self, yardsticks: list[Yardstick]) -> None:
        """Let all machines do these jobs first, unless such jobs are known already."""
        sent = [_Sent(yardstick.order, *pack(dict(yardstick.order.arguments))).held() for yardstick in yardsticks]
        packed = {yardstick.order.name: (yardstick, held) for yardstick, held in zip(yardsticks, sent, strict=True)}
        self._events.put(lambda: self._take_yardsticks(packed))

    def _stop(self) -> None:
        self._is_closing = True

    def _run(self) -> None:
        """The thread. If it ends by a mistake, nobody waits for its jobs any longer."""
        try:
            self._serve()
        finally:
            self._has_looked.set()
            with self._ordering:
                self._has_ended = True
            while not self._orders.empty():
                sent = self._orders.get()
                self._sent[sent.order.name] = sent
            for name, sent in self._sent.items():
                sent.order.ended(name, CompileError(_ENDED), None)

    def _serve(self) -> None:
        looked = -math.inf
        while not self._is_closing:
            with suppress(queue.Empty):
                self._events.get(timeout=_TICK_SECONDS)()
            if time.monotonic() - looked >= _TICK_SECONDS:
                self._look()
                self._has_looked.set()
                looked = time.monotonic()
            self._place()
        self._link.close()

    def _add(self, sent: _Sent, only: str | None = None) -> None:
        self._sent[sent.order.name] = sent
        # Without a home it waits for one, as for a machine that is lost.
        only = self._home or "" if sent.order.at_home else only
        self._roles[sent.order.measures].dispatcher.add(Job(sent.order.name, sent.order.weight, only))

    def _withdraw(self, name: str) -> None:
        if self._sent.pop(name, None) is not None:
            for role in self._roles.values():
                role.dispatcher.withdraw(name)

    def _take_yardsticks(self, packed: Mapping[str, tuple[Yardstick, _Sent]]) -> None:
        if not self._yardsticks:
            self._yardsticks |= packed

    def _look(self) -> None:
        """See which machines are there, and move jobs from those that are not any more."""
        machines = self._link.machines()
        if machines is None:
            self._lose_all()
            machines = {}
        for gone in self._machines.keys() - machines.keys():
            _LOG.warning("the worker on %s is gone; what it did is done elsewhere", self._machines[gone].name)
            self._known.pop(gone, None)
        self._machines = dict(machines)
        usable = [
            name for name, machine in machines.items() if self._chosen[True](machine) and name not in self._unlike
        ]
        self._roles[True].hosts = {name: machines[name].host for name in usable}
        compiling = [machine for machine in machines.values() if self._chosen[False](machine)]
        places = [f"{machine.worker}/{index}" for machine in compiling for index in range(machine.compilers)]
        self._roles[False].hosts = dict(zip(places, places, strict=True))
        self._find_home(usable)
        self._compare(usable)
        self._move_lost()
        self._watch_for_want()

    def _find_home(self, usable: Sequence[str]) -> None:
        """Choose where all jobs run whose times are compared; the first machine is the reference of the others."""
        if self._home not in usable:
            known = [name for name in usable if self._likeness.slowness(name) is not None]
            self._home = next(iter(known or usable), None)
        reference = self._likeness.reference
        if reference not in usable and not self._likeness.has_measured(reference):
            self._likeness.reference = self._home

    def _compare(self, usable: Sequence[str]) -> None:
        """Let machines do the yardsticks, once there are two; of workers on the same machine one does them."""
        apart = [worker for worker in usable if not self._is_joined(worker, usable)]
        if apart == [self._likeness.reference]:
            return
        for machine in apart:
            if machine not in self._unmeasured and self._yardsticks:
                self._unmeasured[machine] = len(self._yardsticks)
                for name, (yardstick, sent) in self._yardsticks.items():
                    order = replace(
                        yardstick.order, name=f"{_YARDSTICK}{name} {machine}", ended=self._measured_likeness
                    )
                    self._add(replace(sent, order=order), machine)

    def _is_joined(self, worker: str, usable: Sequence[str]) -> bool:
        """Whether another worker on the same machine is compared in its place; if that is done, it is as fast."""
        if self._likeness.is_joined(worker):
            return True
        if worker in self._unmeasured or worker == self._likeness.reference:
            return False
        alike = [other for other in usable if self._machines[other].host == self._machines[worker].host]
        known = {*self._unmeasured, self._likeness.reference}
        first = next((other for other in alike if other in known), alike[0])
        if first != worker and self._likeness.slowness(first) is not None:
            self._likeness.join(worker, first)
        return first != worker

    def _measured_likeness(self, name: str, result: JobResult | SartorError, answer: Answer | None) -> None:
        """Note the time of a yardstick, and leave out a machine that is unlike the reference."""
        task, _, machine = name.removeprefix(_YARDSTICK).rpartition(" ")
        seconds = self._yardsticks[task][0].seconds(answer) if answer is not None else None
        if seconds is not None:
            self._likeness.put(machine, task, seconds)
        self._unmeasured[machine] -= 1
        for other in self._machines.keys() & self._unmeasured.keys():
            if not self._unmeasured[other] and not self._unmeasured.get(self._likeness.reference or "", 1):
                self._likeness.assume(other)
            if self._likeness.is_unlike(other) and other not in self._unlike:
                self._unlike.add(other)
                self._roles[True].hosts.pop(other, None)
                slowness = self._likeness.slowness(other) or math.nan
                message = (
                    "the worker on %s takes %.2f times as long as the first one, by candidate 0 of some layers, or "
                    "other layers another multiple: more than %g apart, they are not of one kind, and it is left out"
                )
                _LOG.warning(
                    message, self._machines[other].name if other in self._machines else other, slowness, MOST_UNLIKE
                )

    def _lose_all(self) -> None:
        if self._machines:
            _LOG.warning("the scheduler is gone; what was measured is stored, and the rest goes on when it is back")

    def _move_lost(self) -> None:
        for role, there in ((self._roles[True], self._machines), (self._roles[False], self._roles[False].hosts)):
            for attempt in role.dispatcher.lost_with(there):
                self._lost(attempt, role, "its worker is gone")
        measuring = self._roles[True].dispatcher
        for job in measuring.stranded(self._roles[True].hosts):
            measuring.withdraw(job.name)
            sent = self._sent.pop(job.name, None)
            if sent is not None and sent.order.at_home:
                self._add(sent)

    def _watch_for_want(self) -> None:
        """End all jobs with an error if there was no machine for them for too long."""
        wanted = [measures for measures, role in self._roles.items() if not role.dispatcher.is_idle and not role.hosts]
        now = time.monotonic()
        if not wanted:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = now
            _LOG.warning("no worker of this kind is connected: waiting for one, for %.0f s at most", self._patience)
        elif now - self._alone_since > self._patience:
            for name, sent in list(self._sent.items()):
                if sent.order.measures in wanted:
                    self._withdraw(name)
                    sent.order.ended(name, DisturbedError(_ALONE), None)

    def _place(self) -> None:
        now = time.monotonic()
        for measures, role in self._roles.items():
            unknown = [name for name in role.hosts if measures and self._likeness.slowness(name) is None]
            for attempt in role.dispatcher.place(role.hosts, now, unknown):
                self._start(attempt, role, measures)

    def _start(self, attempt: Attempt, role: _Role, measures: bool) -> None:
        """Send a job with the files that its machine has not got yet."""
        sent, worker = self._sent[attempt.job.name], attempt.machine.partition("/")[0]
        known = self._known.setdefault(worker, set())
        try:
            arguments = sent.for_worker(known)
        except OSError as error:
            # Whoever asked may have gone, and taken the files along.
            self._withdraw(attempt.job.name)
            role.dispatcher.lost(attempt)
            sent.order.ended(attempt.job.name, CompileError(f"a file of a job is gone: {error}"), None)
            return
        known.update(sent.packed.names)
        parcel = Parcel(sent.order.function, arguments, sent.order.timeout, sent.order.is_fresh)

        def done(answer: Answer | None, reason: str) -> None:
            self._events.put(lambda: self._ended(attempt, role, answer, reason))

        self._link.start(worker, parcel, measures, done)

    def _ended(self, attempt: Attempt, role: _Role, answer: Answer | None, reason: str) -> None:
        if not role.dispatcher.is_running(attempt):
            return
        if answer is None:
            self._lost(attempt, role, reason)
        elif answer.missing:
            self._known.pop(attempt.machine.partition("/")[0], None)
            role.dispatcher.return_to_sender(attempt)
        elif role.dispatcher.ended(attempt, time.monotonic()):
            sent = self._sent.pop(attempt.job.name)
            slowness = self._likeness.slowness(attempt.machine) or 1.0
            result = replace(answer.result, job_id=attempt.job.name, slowness=slowness)
            sent.order.ended(attempt.job.name, result, answer)

    def _lost(self, attempt: Attempt, role: _Role, reason: str) -> None:
        _LOG.debug("a job is lost: %s", reason)
        if role.dispatcher.lost(attempt):
            sent = self._sent.pop(attempt.job.name)
            message = f"every worker that ran it was lost: {reason}"
            sent.order.ended(attempt.job.name, JobResult(attempt.job.name, JobStatus.KILLED, None, message, 0.0), None)
