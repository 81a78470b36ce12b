"""Times of whole inferences of several runtimes, and of the dispatches of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sartor.cli.output.terminal import milliseconds, show_json, show_table
from sartor.cli.tables.in_network_table import Row, in_network_json, show_in_network
from sartor.comparison.bench_job import ON_DEVICE, SELF, BenchResults
from sartor.runtime.benchmark import Ratio, time_ratio
from sartor.runtime.dispatch_statistics import DispatchStatistics


def times_json(results: BenchResults, statistics: DispatchStatistics | None, layers: Sequence[Row]) -> None:
    """Print all samples, the dispatches of one inference if they were counted, and the layers of its plan."""
    parts = None if statistics is None else asdict(statistics)
    show_json({"runs": run_json(results), "dispatches": parts, "layers": in_network_json(layers)})


def run_json(results: BenchResults) -> list[dict[str, Any]]:
    """All samples of each runtime as JSON data."""
    faster = speedups(results)
    return [
        {
            "name": name,
            "median_ms": samples.median * 1e3,
            "minimum_ms": samples.minimum * 1e3,
            "samples_ms": [seconds * 1e3 for seconds in samples.seconds],
            "sartor_is_faster_by": asdict(faster[name]) if name in faster else None,
            "relative_error": results.errors.get(name),
        }
        for name, samples in results.samples.items()
    ]


def show_times(results: BenchResults, statistics: DispatchStatistics | None, layers: Sequence[Row]) -> None:
    """As ``times_json``, as tables of medians."""
    faster = speedups(results)
    rows = [
        [
            *(name, milliseconds(samples.median), milliseconds(samples.minimum)),
            *(_error(results.errors.get(name)), speedup(faster.get(name))),
        ]
        for name, samples in results.samples.items()
    ]
    rounds = len(results.samples[SELF].seconds)
    columns = ("runtime", "median ms", "minimum ms", "relative error", "Sartor is (95% interval)")
    show_table(f"one inference, {rounds} rounds", columns, rows, right=(1, 2, 3, 4))
    if statistics is not None:
        _show_dispatches(statistics)
    if layers:
        show_in_network(layers)


def speedups(results: BenchResults) -> Mapping[str, Ratio]:
    """The times of other runtimes, divided by that of the module."""
    own = results.samples[SELF]
    return {name: time_ratio(peer, own) for name, peer in results.samples.items() if name not in (SELF, ON_DEVICE)}


def _error(error: float | None) -> str:
    return "" if error is None else f"{error:.2g}"


def speedup(ratio: Ratio | None) -> str:
    """A speedup with its interval in words; a ratio below 1 is written as a slowdown above 1."""
    if ratio is None:
        return ""
    if ratio.value >= 1:
        return f"{ratio.value:.2f} times as fast ({ratio.low:.2f} to {ratio.high:.2f})"
    return f"{1 / ratio.value:.2f} times as slow ({1 / ratio.high:.2f} to {1 / ratio.low:.2f})"


def _show_dispatches(statistics: DispatchStatistics) -> None:
    total = sum(dispatch.seconds for dispatch in statistics.dispatches) or 1.0
    rows = [
        [dispatch.name, str(dispatch.calls), milliseconds(dispatch.seconds), f"{dispatch.seconds / total:.1%}"]
        for dispatch in statistics.dispatches
    ]
    show_table("dispatches", ("dispatch", "calls", "ms", "share"), rows, right=(1, 2, 3))
