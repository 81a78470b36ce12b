"""Samples of a first inference, and their phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

_SECOND = 1e9


@dataclass(frozen=True)
class FirstRun:
    """Seconds of one fresh process.

    Attributes:
        start: from the start of the process until its interpreter runs the program.
        imports: loading the runtime as a library.
        load: opening the model.
        runs: each inference; the first is cold. A tool that tells nothing has all in its first.
        taken: processor time of all threads, of ``load`` with the first inference, and of each later one; which other
            programs lengthen less than the time by the clock. Empty if it is not known.
        steps: what a thread of the process did beside: kind, begin and end since the begin of ``load``, and bytes.
    """

    start: float
    imports: float
    load: float
    runs: tuple[float, ...]
    steps: tuple[tuple[str, float, float, int], ...] = ()
    taken: tuple[float, ...] = ()

    @property
    def first(self) -> float:
        """From the begin of opening the model to the end of the first inference."""
        return self.load + self.runs[0]

    @property
    def whole(self) -> float:
        """From the start of the process to the first result, without reading the inputs."""
        return self.start + self.imports + self.first

    @property
    def warm(self) -> float:
        """The median inference of the later half."""
        return median(self.runs[len(self.runs) // 2 :])

    @staticmethod
    def of(spawned: int, told: Mapping[str, Any]) -> FirstRun:
        """The times that a child wrote, which was started at ``spawned``, in nanoseconds."""
        ends = [told["loaded"], *told["runs"]]
        return FirstRun(
            (told["begun"] - spawned) / _SECOND,
            (told["imported"] - told["begun"]) / _SECOND,
            (told["loaded"] - told["loading"]) / _SECOND,
            tuple((end - begin) / _SECOND for begin, end in pairwise(ends)),
            tuple(
                (kind, (begin - told["loading"]) / _SECOND, (end - told["loading"]) / _SECOND, size)
                for kind, begin, end, size in told.get("steps", ())
            ),
            tuple((end - begin) / _SECOND for begin, end in pairwise(told["taken"])),
        )


def typical(runs: Sequence[FirstRun]) -> FirstRun:
    """The run whose first result came at the median time."""
    return sorted(runs, key=lambda run: run.first)[len(runs) // 2]
