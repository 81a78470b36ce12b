"""Who does what next: jobs for machines that come, go, and are slow. It knows neither Dask nor the time of day.

A machine does one job at a time. A job whose machine is lost is placed again. Once no job waits, one that takes a
multiple of what others took is placed on a second machine as well: the first result counts, the other is dropped.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from statistics import median

STRAGGLING = 3.0
"""A job that takes this many times the median, for its weight, is placed a second time."""

_LEAST_SECONDS = 2.0
_LEAST_DONE = 5
_MOST_LOSSES = 3


@dataclass(frozen=True)
class Job:
    """Something to be done once, on any machine.

    Attributes:
        name: distinct.
        weight: relative to which its time is expected.
        only: the one machine that may do it, or None.
    """

    name: str
    weight: float = 1.0
    only: str | None = None


@dataclass(frozen=True)
class Attempt:
    """A job on a machine, since ``begun``, in seconds by the caller's clock."""

    number: int
    job: Job
    machine: str
    begun: float


@dataclass
class Dispatcher:
    """Places jobs on machines.

    Attributes:
        straggling: multiple of the median time after which a job is placed a second time.
    """

    straggling: float = STRAGGLING
    _waiting: deque[Job] = field(default_factory=deque)
    _attempts: dict[int, Attempt] = field(default_factory=dict)
    _open: dict[str, Job] = field(default_factory=dict)
    _losses: dict[str, int] = field(default_factory=dict)
    _paces: list[float] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def add(self, job: Job) -> None:
        """Take a job; one for a certain machine goes first."""
        self._open[job.name] = job
        if job.only is None:
            self._waiting.append(job)
        else:
            self._waiting.appendleft(job)

    def withdraw(self, name: str) -> None:
        """Forget a job; its attempts are dropped when they end."""
        self._open.pop(name, None)
        self._waiting = deque(job for job in self._waiting if job.name != name)

    @property
    def is_idle(self) -> bool:
        """Whether all jobs have ended."""
        return not self._open

    @property
    def busy(self) -> frozenset[str]:
        """Machines that have a job, of which the result may count no more."""
        return frozenset(attempt.machine for attempt in self._attempts.values())

    def place(self, hosts: Mapping[str, str], now: float, restricted: Collection[str] = ()) -> list[Attempt]:
        """Begin what can begin.

        Args:
            hosts: of machines that may be used, the host of each: a host does one job at a time.
            now: by the caller's clock.
            restricted: machines that get only jobs that no other machine may do.
        """
        taken = {hosts[worker] for worker in self.busy if worker in hosts}
        placed = []
        for machine, host in hosts.items():
            if host in taken or machine in self.busy:
                continue
            job = self._next(machine, machine in restricted)
            if job is None and machine not in restricted:
                job = self._straggler(machine, now)
            if job is not None:
                attempt = Attempt(next(self._numbers), job, machine, now)
                self._attempts[attempt.number] = attempt
                taken.add(host)
                placed.append(attempt)
        return placed

    def _next(self, machine: str, is_restricted: bool) -> Job | None:
        for index, job in enumerate(self._waiting):
            if job.only == machine or (job.only is None and not is_restricted):
                del self._waiting[index]
                return job
        return None

    def _straggler(self, machine: str, now: float) -> Job | None:
        """The job that has been running for longest beyond what its weight explains, if it has but one attempt."""
        if self._waiting or len(self._paces) < _LEAST_DONE:
            return None
        pace = median(self._paces)
        late = [
            attempt
            for attempt in self._attempts.values()
            if attempt.job.name in self._open
            and attempt.job.only is None
            and attempt.machine != machine
            and now - attempt.begun > max(_LEAST_SECONDS, self.straggling * pace * attempt.job.weight)
            and sum(other.job.name == attempt.job.name for other in self._attempts.values()) == 1
        ]
        return min(late, key=lambda attempt: attempt.begun).job if late else None

    def attempts_at(self, name: str) -> list[Attempt]:
        """Attempts at a job that run."""
        return [attempt for attempt in self._attempts.values() if attempt.job.name == name]

    def is_running(self, attempt: Attempt) -> bool:
        """Whether neither the end nor the loss of an attempt was noted yet."""
        return attempt.number in self._attempts

    def ended(self, attempt: Attempt, now: float) -> bool:
        """Note a result; returns whether it is the first of its job, and counts."""
        self._attempts.pop(attempt.number, None)
        if self._open.pop(attempt.job.name, None) is None:
            return False
        self._waiting = deque(job for job in self._waiting if job.name != attempt.job.name)
        self._paces.append((now - attempt.begun) / attempt.job.weight)
        return True

    def lost(self, attempt: Attempt) -> bool:
        """Note that an attempt has no result; returns whether its job is given up, as it was lost too often."""
        self._attempts.pop(attempt.number, None)
        job = attempt.job
        if job.name not in self._open or any(attempt.job.name == job.name for attempt in self._attempts.values()):
            return False
        self._losses[job.name] = self._losses.get(job.name, 0) + 1
        if self._losses[job.name] > _MOST_LOSSES:
            self.withdraw(job.name)
            return True
        self._waiting.appendleft(job)
        return False

    def return_to_sender(self, attempt: Attempt) -> None:
        """Place an attempt's job again, which is no loss: its machine only lacked something."""
        self._attempts.pop(attempt.number, None)
        if attempt.job.name in self._open:
            self._waiting.appendleft(attempt.job)

    def lost_with(self, machines: Collection[str]) -> list[Attempt]:
        """Attempts on machines other than these, which are gone; each is still to be reported as ``lost``."""
        return [attempt for attempt in self._attempts.values() if attempt.machine not in machines]

    def stranded(self, machines: Collection[str]) -> list[Job]:
        """Waiting jobs that only a machine may do that is gone."""
        return [job for job in self._waiting if job.only is not None and job.only not in machines]
