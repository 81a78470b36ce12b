"""A job that goes on from call to call, for the tests of calls. Workers import this module by name."""

from __future__ import annotations

import gc
import os
from dataclasses import dataclass

from sartor.errors import DeviceError, UsageError
from sartor.tuning.workers.protocol import WorkerError


@dataclass(frozen=True)
class Counted:
    """How far ``count_on`` has come."""

    numbers: tuple[int, ...] = ()

    @property
    def done(self) -> int:
        return len(self.numbers)


def count_on(before: Counted, seconds: float, refused: int | None = None) -> Counted | WorkerError:
    """One number more, which must not be ``refused``; crashes if it has no time."""
    if not seconds:
        os.abort()
    if before.done == refused:
        return WorkerError(UsageError(f"{refused} is refused"))
    return Counted((*before.numbers, before.done))


def is_collecting() -> bool:
    """Whether garbage is looked for while a job runs."""
    return gc.isenabled()


def lose_device(is_raised: bool) -> WorkerError:
    """Fails as a job does whose GPU is lost."""
    error = DeviceError("VK_ERROR_DEVICE_LOST")
    if is_raised:
        raise error
    return WorkerError(error)


def process() -> int:
    """The number of the process that runs the job."""
    return os.getpid()
