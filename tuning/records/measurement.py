"""Measurements of variants: the key under which one is stored, its status and raw samples."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import metadata
from statistics import quantiles

from sartor.devices import is_cpu
from sartor.tuning.workers.disturbances import DISK_FULL_SIGN
from sartor.tuning.workers.protocol import OUT_OF_MEMORY_SIGN

_DEATH_BY_MEMORY = "the process ran out of memory"
MESSAGE_LIMIT = 4000
"""Number of characters of a failure's message that are kept."""

CALLS_MARK = "@"
"""In a key, between a task of open sizes and the calls whose mean time was measured."""
CALL_MARK = "#"
"""In a key, between a task of open sizes and the sizes of the one call that was measured."""

PROTOCOL_VERSION = 8
"""Version of the way variants are measured. Raising it invalidates older measurements."""


NO_TIME = 2e-7
"""Seconds. What takes no more starts no dispatch, as reshapes, and tells nothing of what does."""


class Status(StrEnum):
    """How the measurement of a variant ended; ``JobStatus`` describes the values that both have."""

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
        """Whether the failure was caused by the variant's surroundings and not by the variant."""
        return self in (Status.KILLED, Status.STARVED, Status.MEMORY_SHORT, Status.DISK_FULL)


@dataclass(frozen=True, order=True)
class MeasurementKey:
    """Everything that a measured time depends on; measurements with equal keys are interchangeable.

    Attributes:
        task: stable hash of the layer's computation, the values of its weights excluded; of one of open sizes with the
            calls whose mean time was measured, or with the sizes of one of them.
        variant: descriptor of the routine and its parameters, ``cpu:f32/conv2d.nhwc{tile=4}``.
        source: hash of the code that the variant emits, and of the source files that emit and measure it.
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

    @property
    def task_key(self) -> str:
        """The hash of the layer's computation alone."""
        return self.task.partition(CALLS_MARK)[0].partition(CALL_MARK)[0]

    @property
    def is_of_one_call(self) -> bool:
        """Whether it is of a task of open sizes with those of one call."""
        return CALL_MARK in self.task and CALLS_MARK not in self.task.partition(CALL_MARK)[0]


def key_threads(device: str, threads: int) -> int:
    """The threads in the key of what ran on a device: a GPU's times do not depend on how many its host has, and are of
    use to hosts with others."""
    return threads if is_cpu(device) else 1


@dataclass(frozen=True)
class Measurement:
    """One measurement of one variant.

    Attributes:
        key: what was measured, and where.
        status: how the measurement ended.
        samples: seconds of each inference, in the order of the runs; never empty if ``status`` is OK.
        baseline_samples: seconds of candidate 0, interleaved with ``samples`` in the same run.
        error: relative error against the reference, infinite if the output had NaN; None if not compared.
        message: why it failed. Longer than ``MESSAGE_LIMIT`` characters, its middle is cut out; bytes that are not text
            are escaped.
        created: seconds since the epoch.
        packed_bytes: bytes of the packed weights; for a whole network bytes of all its memory, 0 if unknown.
        facts: of the task, as ``task_facts`` writes them; empty if there are none.
        foreign_load: how many processors other programs took meanwhile, if that left too few; else 0. Times are then
            less exact.

    Raises:
        ValueError: a sample is not positive and finite, OK has no samples, the error is NaN or negative, the load is
            negative or not finite, or it was made at no time.
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
    foreign_load: float = 0.0

    def __post_init__(self) -> None:
        if not all(math.isfinite(s) and s > 0 for s in (*self.samples, *self.baseline_samples)):
            raise ValueError(f"samples of {self.key.variant} are not all positive and finite")
        if self.status is Status.OK and not self.samples:
            raise ValueError(f"{self.key.variant} is OK but has no samples")
        if not math.isfinite(self.created):
            raise ValueError(f"{self.key.variant} was measured at {self.created}, which is no time")
        if self.error is not None and not self.error >= 0:
            raise ValueError(f"relative error of {self.key.variant} is {self.error}, not a number from 0 up")
        if not 0 <= self.foreign_load < math.inf:
            raise ValueError(f"foreign load of {self.key.variant} is {self.foreign_load}, not a number from 0 up")
        object.__setattr__(self, "message", shorten(_storable(self.message), MESSAGE_LIMIT))

    @property
    def is_transient(self) -> bool:
        """Whether it is a failure that was not caused by the measured variant.

        Older versions had no statuses for such failures: they recorded a full disk as a crash, and a killed process as
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
            ValueError: the status is not OK, so there is no time.
        """
        if self.status is not Status.OK:
            raise ValueError(f"{self.key.variant} ended as {self.status} and has no time")
        return typical_time(self.samples)

    def time_at(self, baseline_time: float) -> float:
        """Seconds of one inference, in the conditions in which candidate 0 takes ``baseline_time`` seconds.

        Clock rates and other load differ between runs. Candidate 0 was interleaved with the variant and had the same
        conditions, so the ratio of their times is constant. Without baseline samples this is ``time``.
        """
        if not self.baseline_samples:
            return self.time
        return self.time * baseline_time / typical_time(self.baseline_samples)


def typical_time(samples: Sequence[float]) -> float:
    """The lower quartile of ``samples``, interpolated.

    Disturbances only add time (Chen and Revels, "Robust benchmarking in noisy environments", 2016), so a low order
    statistic is closest to the undisturbed time. The minimum decreases with the number of samples and depends on a
    single lucky one. The lower quartile does neither, and is right if a quarter of the run was undisturbed.
    """
    if len(samples) == 1:
        return samples[0]
    return quantiles(samples, n=4, method="inclusive")[0]


def shorten(text: str, limit: int) -> str:
    """Cut the middle out of a text of more than ``limit`` characters: compilers print the error first, crashes last."""
    if len(text) <= limit:
        return text
    mark = "\n[...]\n"
    head = (limit - len(mark)) // 2
    return text[:head] + mark + text[len(text) - (limit - len(mark) - head) :]


def _storable(text: str) -> str:
    """Escape bytes that are not UTF-8, and NUL, at which the database's tools stop; crashing programs print both."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")


@functools.cache
def reference_version() -> str:
    """The version of ONNX Runtime, the reference: errors against different versions are not comparable."""
    return f"onnxruntime {metadata.version('onnxruntime')}"


@functools.cache
def runtime_key() -> str:
    """Versions on which a variant's code and its timing depend."""
    compiler = metadata.version("iree-base-compiler")
    runtime = metadata.version("iree-base-runtime")
    return f"iree-compiler {compiler}, iree-runtime {runtime}, protocol {PROTOCOL_VERSION}"
