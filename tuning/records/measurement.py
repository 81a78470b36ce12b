"""What one variant cost on one machine: the key it is stored under, raw samples, status."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import metadata
from statistics import quantiles

from sartor.tuning.workers.disturbances import DISK_FULL_SIGN
from sartor.tuning.workers.protocol import OUT_OF_MEMORY_SIGN

_DEATH_BY_MEMORY = "the process ran out of memory"
MESSAGE_LIMIT = 4000
"""Characters kept of a failure's message."""

PROTOCOL_VERSION = 6
"""Version of how variants are measured; raising it makes older measurements no longer match."""


class Status(StrEnum):
    """How measuring a variant ended; ``JobStatus`` says more of those that it has too."""

    OK = "ok"
    COMPILE_FAILED = "compile_failed"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    WRONG_RESULT = "wrong_result"
    KILLED = "killed"
    STARVED = "starved"
    MEMORY_SHORT = "memory_short"
    DISK_FULL = "disk_full"

    @property
    def is_transient(self) -> bool:
        """Whether the failure says nothing about the variant, but about what went on around it."""
        return self in (Status.KILLED, Status.STARVED, Status.MEMORY_SHORT, Status.DISK_FULL)


@dataclass(frozen=True, order=True)
class MeasurementKey:
    """Everything that a measured time depends on; two measurements are interchangeable if all of it agrees.

    Attributes:
        task: stable hash of the layer's computation, the values of its weights excluded.
        variant: descriptor of the routine and its parameters, ``cpu:f32/conv2d.nhwc{tile=4}``.
        source: hash of what the variant emits, and of the source that takes part in emitting it.
        hardware: ``Hardware.key`` of the machine.
        threads: number of threads the variant ran on.
        runtime: versions of the compiler, the runtime and the protocol, as ``runtime_key`` gives them.
        backend: device and target, ``cpu/host`` or ``cuda/sm_80``.
    """

    task: str
    variant: str
    source: str
    hardware: str
    threads: int
    runtime: str
    backend: str


@dataclass(frozen=True)
class Measurement:
    """One variant measured once.

    Attributes:
        key: what was measured, and where.
        status: how it ended.
        samples: seconds of each inference, in the order they ran; never empty if ``status`` is OK.
        baseline_samples: seconds of candidate 0, interleaved with ``samples`` in the same run.
        error: relative error against the reference, infinite if the output held NaN; None if not compared.
        message: why it failed; its middle is cut out beyond ``MESSAGE_LIMIT`` characters, what is not text is
            escaped.
        created: seconds since the epoch.
        packed_bytes: bytes of the packed weights; of a whole network, of all memory that it takes, 0 if not known.
        facts: what is known of the task, as ``task_facts`` writes it; empty if nothing is.

    Raises:
        ValueError: a sample is not positive and finite, OK has no samples, or the error is NaN or negative.
    """

    key: MeasurementKey
    status: Status
    samples: tuple[float, ...] = ()
    baseline_samples: tuple[float, ...] = ()
    error: float | None = None
    message: str = ""
    created: float = field(default_factory=time.time)
    packed_bytes: int = 0
    facts: str = ""

    def __post_init__(self) -> None:
        if not all(math.isfinite(s) and s > 0 for s in (*self.samples, *self.baseline_samples)):
            raise ValueError(f"samples of {self.key.variant} are not all positive and finite")
        if self.status is Status.OK and not self.samples:
            raise ValueError(f"{self.key.variant} is OK but has no samples")
        if self.error is not None and not self.error >= 0:
            raise ValueError(f"relative error of {self.key.variant} is {self.error}, not a number from 0 up")
        object.__setattr__(self, "message", shorten(_storable(self.message), MESSAGE_LIMIT))

    @property
    def is_transient(self) -> bool:
        """Whether it is a failure that says nothing about what was measured.

        Older versions had no statuses for that: a full disk was a crash there, and a process that was killed had run
        out of memory.
        """
        if self.status is Status.OUT_OF_MEMORY:
            return self.message.startswith(_DEATH_BY_MEMORY) and not OUT_OF_MEMORY_SIGN.search(self.message)
        may_be_disk = self.status in (Status.CRASHED, Status.COMPILE_FAILED)
        return self.status.is_transient or (may_be_disk and DISK_FULL_SIGN.search(self.message) is not None)

    @property
    def time(self) -> float:
        """Seconds of one inference, as ``typical_time`` estimates them.

        Raises:
            ValueError: the variant did not end OK, so that no time stands for it.
        """
        if self.status is not Status.OK:
            raise ValueError(f"{self.key.variant} ended as {self.status} and has no time")
        return typical_time(self.samples)

    def time_at(self, baseline_time: float) -> float:
        """Seconds of one inference on the machine as it is when candidate 0 takes ``baseline_time`` seconds.

        Runs hours apart see different clock rates and neighbours; candidate 0, interleaved, saw the same as
        the variant, so their ratio carries over. Without baseline samples this is ``time``.
        """
        if not self.baseline_samples:
            return self.time
        return self.time * baseline_time / typical_time(self.baseline_samples)


def typical_time(samples: Sequence[float]) -> float:
    """The lower quartile of ``samples``, interpolated.

    Disturbances only ever add time (Chen and Revels, "Robust benchmarking in noisy environments", 2016), so
    a low order statistic is closest to the undisturbed time. The minimum falls with the number of samples and
    follows a single lucky one; the lower quartile does neither, and holds if a quarter of the run was quiet.
    """
    if len(samples) == 1:
        return samples[0]
    return quantiles(samples, n=4, method="inclusive")[0]


def shorten(text: str, limit: int) -> str:
    """``text`` cut in the middle to ``limit`` characters: compilers say what is wrong first, crashes last."""
    if len(text) <= limit:
        return text
    mark = "\n[...]\n"
    head = (limit - len(mark)) // 2
    return text[:head] + mark + text[len(text) - (limit - len(mark) - head) :]


def _storable(text: str) -> str:
    """What crashed programs print need not be text; the database takes UTF-8, its tools stop at a NUL."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")


@functools.cache
def reference_version() -> str:
    """The version of ONNX Runtime, which says what is right: errors against another one do not compare."""
    return f"onnxruntime {metadata.version('onnxruntime')}"


@functools.cache
def runtime_key() -> str:
    """Versions that decide what a variant compiles to and how it is timed."""
    compiler = metadata.version("iree-base-compiler")
    runtime = metadata.version("iree-base-runtime")
    return f"iree-compiler {compiler}, iree-runtime {runtime}, protocol {PROTOCOL_VERSION}"
