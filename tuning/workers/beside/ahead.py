"""A call that goes on in a process of its own while the caller does something else.

Import, candidates and selection keep one processor busy. What is needed later, and is known by then, runs on another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Thread
from typing import Any, Generic, TypeVar, cast

from sartor.tuning.workers.channel import wait
from sartor.tuning.workers.process import JobResult, WorkerProcess
from sartor.tuning.workers.protocol import JobStatus, Logged, Request

_Result = TypeVar("_Result")
# Interval in which a silent worker is checked for having been stopped.
_HEARTBEAT = 5.0


class Ahead(Generic[_Result]):
    """One call, which has begun. Who begins it must wait for it or cancel it, in the same thread.

    A thread sends the arguments and receives the answer; the worker is the caller's, as a worker dies with the thread
    that started it.

    Args:
        worker: a process without a job, which may be starting.
        request: the call.
        step: description of the call.
        timeout: seconds that it may take, the start of the process included.
        ended: called once the process has ended.
        relay: told what the call logged.
    """

    def __init__(
        self,
        worker: WorkerProcess,
        request: Request,
        step: str,
        timeout: float,
        ended: Callable[[], None],
        relay: Callable[[Sequence[Logged]], None],
    ) -> None:
        self._worker = worker
        self._ended = ended
        self._relay = relay
        self._result: JobResult | None = None
        self._is_cancelled = False
        worker.assign(step, request, timeout)
        self._thread = Thread(target=self._attend, name="ahead", daemon=True)
        self._thread.start()

    def result(self) -> JobResult:
        """Wait for the call's end; the result says how it ended."""
        self._thread.join()
        if self._result is None:
            raise RuntimeError("a call ended without a result")
        self._relay(self._result.logged)
        return self._result

    def value(self) -> _Result | None:
        """Wait for the call's end; None if it did not succeed, so that it is to be repeated where failures are told.

        That it was disturbed is told at once.
        """
        result = self.result()
        return cast(_Result, result.value) if result.status is JobStatus.OK else None

    def cancel(self) -> None:
        """End the process, if it has not ended."""
        self._is_cancelled = True
        self._worker.signal_end()
        self._thread.join()

    def _attend(self) -> None:
        """Send and receive until there is a result, and end the process then."""
        try:
            while self._result is None:
                patience = max(0.0, min(_HEARTBEAT, self._worker.seconds_left))
                is_speaking = bool(wait([self._worker.channel], patience))
                self._result = self._worker.receive() if is_speaking else self._worker.overdue()
            if self._result.status.is_transient and not self._is_cancelled:
                self._result.tell_disturbance()
        finally:
            self._worker.kill()
            self._ended()


def request_of(function: str, arguments: Mapping[str, Any]) -> Request:
    """The request for a call of ``package.module:name`` on any processor."""
    return Request(function, arguments, None)
