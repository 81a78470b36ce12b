"""Asynchronous runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

from sartor.errors import DeviceError, SartorError, UsageError
from sartor.runtime.driver.device_array import DeviceArray
from sartor.runtime.driver.signature import Array

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

CLOSED = "the session is closed"


def limited_seconds(timeout: float | None) -> float | None:
    """A time to wait, as a caller gave it; None if it is longer than any wait may be.

    Raises:
        UsageError: if it is no number of seconds.
    """
    if timeout is None:
        return None
    if not isinstance(timeout, Real) or not timeout >= 0:
        raise UsageError(f"timeout is {timeout!r}, expected a number of seconds, or None")
    # The end of a longer wait is no time that the system can count.
    return None if timeout > threading.TIMEOUT_MAX / 2 else float(timeout)


class PendingRun:
    """The result of ``Session.run_async``: wait for it with ``result()`` or ``await`` it."""

    def __init__(
        self,
        wait: Callable[[float | None], list[DeviceArray]],
        selected: Sequence[int],
        to_host: Callable[[list[DeviceArray]], list[Array]],
    ) -> None:
        """A run that has begun.

        Args:
            wait: returns all outputs of the module within a number of seconds, or raises ``TimeoutError``.
            selected: indices of the outputs that were asked for.
            to_host: makes arrays of all outputs: those that were asked for, cut to size.
        """
        self._wait, self._selected, self._to_host = wait, selected, to_host

    def __reduce__(self) -> tuple[Any, ...]:
        """Refuse to be copied or sent to another process, as the run is this one's."""
        raise UsageError("a pending run cannot be copied or pickled; wait for its result, which can")

    def done(self) -> bool:
        """Whether the run has finished or failed."""
        try:
            self._wait(0.0)
        except TimeoutError:
            return False
        except SartorError:
            return True
        return True

    def device_result(self, timeout: float | None = None) -> list[DeviceArray]:
        """Wait for the run; returns the outputs on the device.

        Raises:
            TimeoutError: if the run does not finish within ``timeout`` seconds; None waits without limit.
            DeviceError: if the run failed.
            UsageError: if ``timeout`` is no number of seconds.
        """
        outputs = self._wait(limited_seconds(timeout))
        return [outputs[index] for index in self._selected]

    def result(self, timeout: float | None = None) -> list[Array]:
        """Wait for the run; returns the outputs as numpy arrays. Raises as ``device_result``."""
        return self._to_host(self._wait(limited_seconds(timeout)))

    def __await__(self) -> Generator[None, None, list[Array]]:
        # Only programs that wait so need it, and have loaded it; it takes as long to load as all of a session.
        import asyncio

        return asyncio.to_thread(self.result).__await__()


def result_in(process: int, future: Future[list[DeviceArray]], timeout: float | None) -> list[DeviceArray]:
    """The result of a run in a thread of a process.

    Raises:
        UsageError: if the run had not finished when this process was forked from that one.
        TimeoutError, DeviceError: as ``PendingRun.device_result``.
    """
    if os.getpid() != process and not future.done():
        raise UsageError("the run was not finished when this process was forked, and its thread stayed with the parent")
    return future.result(timeout)


class OwnThread:
    """A session's thread for runs that would hold up who asks for them; it starts with the first, until the end."""

    def __init__(self) -> None:
        # Not the lock of the session's runs, for which nobody shall wait who asks for another.
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._is_closed = False

    def submit(self, run: Callable[[], list[DeviceArray]]) -> Future[list[DeviceArray]]:
        """Execute a run after those that were submitted before.

        Raises:
            DeviceError: if no thread can be started.
            UsageError: if it was closed.
        """
        with self._lock:
            if self._is_closed:
                raise UsageError(CLOSED)
            if self._executor is None:
                from concurrent.futures import ThreadPoolExecutor

                self._executor = ThreadPoolExecutor(1, thread_name_prefix="sartor-session")
            try:
                return self._executor.submit(run)
            except RuntimeError as error:
                # It keeps what it could not begin.
                self._executor = None
                raise DeviceError(f"a run beside others needs a thread of its own: {error}; call run instead") from None

    def close(self) -> None:
        """Refuse further runs, and wait for those that were submitted."""
        with self._lock:
            self._is_closed, executor = True, self._executor
        if executor is not None:
            executor.shutdown()
