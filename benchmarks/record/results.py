"""What one experiment measured on one network: samples, errors, failures, and where and how they were taken."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import TypeAdapter, ValidationError

from benchmarks.record.circumstances import Circumstances
from sartor.errors import UsageError
from sartor.publishing import written

RESULTS = Path("benchmarks/results")
"""Where results are kept, from the repository's root."""

ERROR_LIMIT = 1e-3
"""Largest relative error of a result in f32; of others it is the result's ``allowed``."""


@dataclass(frozen=True)
class Entry:
    """What one competitor did.

    Attributes:
        samples: seconds; one list for each process, each sample the median of a block of runs.
        error: relative error of the outputs against ONNX Runtime, the worst of all evaluated inputs.
        allowed: largest error with which it counts; None for any that is a number.
        facts: what else is known, by name: number of layers in each type, seconds that a compilation took.
    """

    samples: tuple[tuple[float, ...], ...]
    error: float = 0.0
    allowed: float | None = ERROR_LIMIT
    facts: Mapping[str, float | str] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Median over the processes of their medians: memory addresses, and with them times, differ by process."""
        return median(median(sample) for sample in self.samples)

    @property
    def is_right(self) -> bool:
        """Whether its outputs are within what is allowed; a NaN is not."""
        return math.isfinite(self.error) if self.allowed is None else self.error <= self.allowed


@dataclass(frozen=True)
class Result:
    """One experiment on one network.

    Attributes:
        experiment: its name, a key of ``EXPERIMENTS``.
        network: name of the network.
        threads: threads of every competitor.
        circumstances: where, when and with what it was measured.
        entries: what was measured, by competitor.
        failures: why others took no part, by competitor.
    """

    experiment: str
    network: str
    threads: int
    circumstances: Circumstances
    entries: Mapping[str, Entry]
    failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Its file, below the folder of results."""
        return Path(self.experiment) / f"{self.network}.{self.threads}.json"

    def ratio(self, who: str, to: str) -> float | None:
        """Time of ``who`` divided by that of ``to``, the median of all processes; None unless both are right."""
        first, second = self.entries.get(who), self.entries.get(to)
        if first is None or second is None or not (first.is_right and second.is_right):
            return None
        pairs = zip(first.samples, second.samples, strict=True)
        return median(median(one) / median(other) for one, other in pairs)

    def save(self, folder: Path) -> Path:
        """Write it as JSON, whole or not at all; returns the file."""
        path = folder / self.path
        path.parent.mkdir(parents=True, exist_ok=True)
        data: Any = _ADAPTER.dump_python(self, mode="json")
        with written(path) as new:
            new.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        return path


_ADAPTER = TypeAdapter(Result)


def read_result(path: Path) -> Result:
    """Read a result.

    Raises:
        UsageError: if the file is not one, or has a sample that is not a time.
    """
    try:
        result = _ADAPTER.validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise UsageError(f"'{path}' is not a result: {error}") from None
    for who, entry in result.entries.items():
        if not entry.samples or not all(map(_is_time, _flat(entry.samples))) or not all(entry.samples):
            raise UsageError(f"'{path}': '{who}' has no samples, or one that is not a time")
    return result


def read_results(folder: Path, experiment: str) -> list[Result]:
    """All results of an experiment, by network and threads."""
    return [read_result(path) for path in sorted((folder / experiment).glob("*.json"))]


def geometric_mean(ratios: list[float]) -> float:
    """The geometric mean; raises ``ValueError`` if there is none."""
    if not ratios:
        raise ValueError("the geometric mean of nothing")
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def _flat(samples: tuple[tuple[float, ...], ...]) -> Iterator[float]:
    for sample in samples:
        yield from sample


def _is_time(seconds: float) -> bool:
    return math.isfinite(seconds) and seconds > 0
