"""Writes tables and figures into the documents, between comments that name them.

    <!-- table: speed of the zoo -->  … <!-- end of table -->
    <!-- figure: zoo resnet50 1: ONNX Runtime / Sartor -->1.33<!-- end -->

A figure is a competitor's time divided by another's, ``mean: FASTER PEER / Sartor`` of an experiment and a number of
threads, or a time in milliseconds (``zoo resnet50 1: Sartor``).
"""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.record.experiments import EXPERIMENTS
from benchmarks.record.results import Result, read_results
from benchmarks.record.tables import TABLES, mean_speedup
from sartor.errors import UsageError

TABLE = re.compile(r"(<!-- table: (?P<name>[^>]+?) -->\n).*?(<!-- end of table -->)", re.DOTALL)
FIGURE = re.compile(r"(<!-- figure: (?P<name>[^>]+?) -->).*?(<!-- end -->)", re.DOTALL)
_MEAN = re.compile(r"(?P<experiment>\S+) (?P<threads>\d+): mean")
_OF_ONE = re.compile(r"(?P<experiment>\S+) (?P<network>\S+) (?P<threads>\d+): (?P<who>[^/]+?)(?: / (?P<to>[^/]+))?")


def documents(root: Path) -> list[Path]:
    """All documents of the repository, which figures may be in."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def with_results(text: str, folder: Path) -> str:
    """A document's text with the tables and figures that the results in ``folder`` give.

    Raises:
        UsageError: if it names a table or a figure that no result has.
    """
    text = TABLE.sub(lambda found: f"{found[1]}\n{_table(found['name'], folder)}\n\n{found[3]}", text)
    return FIGURE.sub(lambda found: f"{found[1]}{figure(found['name'], folder)}{found[3]}", text)


def figure(name: str, folder: Path) -> str:
    """The text of a figure.

    Raises:
        UsageError: if no result has it.
    """
    if found := _MEAN.fullmatch(name):
        mean, count = mean_speedup(_results(found["experiment"], int(found["threads"]), folder))
        if not count:
            raise UsageError(f"the figure '{name}' is a mean of nothing")
        return f"{mean:.2f}"
    found = _OF_ONE.fullmatch(name)
    if found is None:
        raise UsageError(f"'{name}' names no figure; write 'zoo resnet50 1: ONNX Runtime / Sartor' or 'zoo 1: mean'")
    results = _results(found["experiment"], int(found["threads"]), folder)
    result = next((each for each in results if each.network == found["network"]), None)
    value = None if result is None else _value(result, found["who"], found["to"])
    if value is None:
        raise UsageError(f"no result has the figure '{name}'; measure it with: python -m benchmarks.record run")
    return value


def _table(name: str, folder: Path) -> str:
    if name not in TABLES:
        raise UsageError(f"there is no table '{name}'; there are {', '.join(TABLES)}")
    return TABLES[name](folder)


def _results(experiment: str, threads: int, folder: Path) -> list[Result]:
    if experiment not in EXPERIMENTS:
        raise UsageError(f"there is no experiment '{experiment}'; there are {', '.join(EXPERIMENTS)}")
    return [result for result in read_results(folder, experiment) if result.threads == threads]


def _value(result: Result, who: str, to: str | None) -> str | None:
    if to is None:
        entry = result.entries.get(who)
        return f"{entry.seconds * 1e3:.3g}" if entry is not None and entry.is_right else None
    ratio = result.ratio(who, to)
    return None if ratio is None else f"{ratio:.2f}"
