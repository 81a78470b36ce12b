"""What an experiment is asked for, and what it gives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.record.results import Entry


@dataclass(frozen=True)
class Effort:
    """How long is measured: seconds in each process, and the number of processes."""

    seconds: float = 6.0
    processes: int = 3


@dataclass(frozen=True)
class Task:
    """One network to measure.

    Attributes:
        model: the ONNX file.
        threads: of every competitor.
        directory: for modules and databases; stock modules in it are used again.
        effort: how long is measured.
    """

    model: Path
    threads: int
    directory: Path
    effort: Effort

    def file(self, end: str) -> Path:
        """A file of this network and number of threads, whose name ends so."""
        return self.directory / f"{self.model.stem}.{self.threads}.{end}"

    def module(self, who: str) -> Path:
        """The module of one of Sartor's entries."""
        return self.file(f"{who.replace(' ', '_').replace(chr(39), '')}.vmfb")


Found = tuple[dict[str, Entry], dict[str, str]]
"""Entries and failures."""
