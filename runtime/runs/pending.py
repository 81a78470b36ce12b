"""Asynchronous runs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from sartor.errors import DeviceError
from sartor.runtime.driver.device_array import DeviceArray
from sartor.runtime.driver.signature import Array


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

    def done(self) -> bool:
        """Whether the run has finished or failed."""
        try:
            self._wait(0.0)
        except TimeoutError:
            return False
        except DeviceError:
            return True
        return True

    def device_result(self, timeout: float | None = None) -> list[DeviceArray]:
        """Wait for the run; returns the outputs on the device.

        Raises:
            TimeoutError: if the run does not finish within ``timeout`` seconds; None waits without limit.
            DeviceError: if the run failed.
        """
        outputs = self._wait(timeout)
        return [outputs[index] for index in self._selected]

    def result(self, timeout: float | None = None) -> list[Array]:
        """Wait for the run; returns the outputs as numpy arrays. Raises as ``device_result``."""
        return self._to_host(self._wait(timeout))

    def __await__(self) -> Generator[None, None, list[Array]]:
        # Only programs that wait so need it, and have loaded it; it takes as long to load as all of a session.
        import asyncio

        return asyncio.to_thread(self.result).__await__()
