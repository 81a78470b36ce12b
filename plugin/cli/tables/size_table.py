"""Times of a module with inputs of several sizes, beside those of other runtimes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sartor.cli.output.terminal import milliseconds, show_json, show_table
from sartor.cli.tables.time_table import run_json, speedup, speedups
from sartor.comparison.bench_job import BenchResults

Sizes = Mapping[str, int]

# Columns of a terminal that the longest time takes.
_WIDTH = 40
_BLOCK = "█"


def sizes_json(sizes: Sequence[Sizes], results: Sequence[BenchResults]) -> None:
    """Print all samples of each combination of sizes."""
    rows: list[dict[str, Any]] = [
        {"sizes": dict(one), "runs": run_json(timed)} for one, timed in zip(sizes, results, strict=True)
    ]
    show_json({"sizes": rows})


def show_sizes(sizes: Sequence[Sizes], results: Sequence[BenchResults]) -> None:
    """Print a table of medians with a row for each runtime and size, whose bars are as long as the time's logarithm."""
    times = [samples.median for timed in results for samples in timed.samples.values()]
    least, most = min(times), max(times)
    rows = list[list[str]]()
    for one, timed in zip(sizes, results, strict=True):
        faster = speedups(timed)
        for index, (name, samples) in enumerate(timed.samples.items()):
            told = ", ".join(f"{dimension}={size}" for dimension, size in one.items()) if not index else ""
            bar = _BLOCK * _length(samples.median, least, most)
            rows.append([told, name, milliseconds(samples.median), speedup(faster.get(name)), bar])
    columns = ("sizes", "runtime", "median ms", "Sartor is (95% interval)", "time, logarithmic")
    show_table(f"one inference with each of {len(sizes)} sizes", columns, rows, right=(2, 3))


def _length(seconds: float, least: float, most: float) -> int:
    """The length of a bar: from one block for the least time to all for the largest, or to what ratios tell of less."""
    octaves = max(math.log2(most / least), 1.0)
    return 1 + round((_WIDTH - 1) * math.log2(seconds / least) / octaves)
