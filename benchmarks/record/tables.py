"""The tables of the documents, from results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

from benchmarks.record.cold.tables import cold_table, first_table
from benchmarks.record.experiments import (
    ALONE,
    BESIDE,
    BEST_STOCK,
    BOUND,
    BOUND_ORT,
    BUDGETS,
    DECIDED_AGAIN,
    OPENVINO,
    OPENVINO_INT8,
    ORT,
    OURS,
    PRECISIONS,
    STOCK,
    UNTUNED,
)
from benchmarks.record.markdown import (
    DASH,
    NOTHING,
    circumstance_lines,
    failure_lines,
    in_ms,
    markdown_table,
    thread_count,
)
from benchmarks.record.results import Result, geometric_mean, read_results

PEERS = (ORT, OPENVINO)
_SHORT = 1e-4


def speed_table(experiment: str, folder: Path) -> str:
    """Times of every network beside all peers, for each number of threads, and what they say in all."""
    results = read_results(folder, experiment)
    parts = [
        part
        for threads in sorted({each.threads for each in results})
        for part in _speed_of([each for each in results if each.threads == threads], threads)
    ]
    return "\n\n".join(parts) or NOTHING


def precision_table(folder: Path) -> str:
    """Times and errors of every precision within every budget, one table for each network and number of threads."""
    parts = [part for result in read_results(folder, "precision") for part in _precisions_of(result)]
    return "\n\n".join(parts) or NOTHING


def prediction_table(folder: Path) -> str:
    """Times that layers timed alone predict for the whole network, before anything is corrected, and measured ones."""
    rows = []
    for result in read_results(folder, "zoo"):
        facts = result.entries[OURS].facts if OURS in result.entries else {}
        foreseen, measured = facts.get("foreseen seconds"), facts.get("then measured seconds")
        if isinstance(foreseen, float) and isinstance(measured, float):
            rows.append((result, foreseen, measured))
    deviations = [abs(foreseen / measured - 1) for _, foreseen, measured in rows]
    shown = [
        [each.network, str(each.threads), in_ms(foreseen), in_ms(measured), f"{foreseen / measured - 1:+.1%}"]
        for each, foreseen, measured in rows
    ]
    if not shown:
        return NOTHING
    text = f"The median deviation is {median(deviations):.1%}, the largest {max(deviations):.1%}."
    return f"{markdown_table(('network', 'threads', 'predicted ms', 'measured ms', 'deviation'), shown)}\n\n{text}"


def tuning_table(folder: Path) -> str:
    """Seconds of compilations with an empty database and with a full one."""
    found: dict[int, list[Result]] = {}
    for result in read_results(folder, "zoo"):
        if OURS in result.entries:
            found.setdefault(result.threads, []).append(result)
    parts = []
    for threads, results in sorted(found.items()):
        cold = {each.network: _fact(each, "cold seconds") for each in results}
        rows = [
            [
                each.network,
                f"{cold[each.network]:.0f}",
                f"{_fact(each, 'again seconds'):.1f}",
                each.circumstances.commit,
            ]
            for each in results
        ]
        parts.append(markdown_table((thread_count(threads), "cold s", "second time s", "commit"), rows))
        parts.append(f"Median {median(cold.values()):.0f} s, longest {max(cold.values()):.0f} s.")
    return "\n\n".join(parts) or NOTHING


def neighbour_table(folder: Path) -> str:
    """Times of plans that were tuned beside a busy neighbour, over those of plans that were tuned alone."""
    results = read_results(folder, "neighbour")
    rows = [
        [
            each.network,
            thread_count(each.threads),
            *(_time(each, who) for who in (ALONE, BESIDE, DECIDED_AGAIN)),
            *(_over(each, who, ALONE) for who in (BESIDE, DECIDED_AGAIN)),
            each.circumstances.commit,
        ]
        for each in results
    ]
    if not rows:
        return NOTHING
    columns = ("network", "threads", f"{ALONE}, ms", BESIDE, DECIDED_AGAIN, "beside / alone", "again / alone", "commit")
    return "\n\n".join((markdown_table(columns, rows), *failure_lines(results), *circumstance_lines(results)))


TABLES: Mapping[str, Callable[[Path], str]] = {
    "speed of the zoo": lambda folder: speed_table("zoo", folder),
    "speed of public models": lambda folder: speed_table("models", folder),
    "precision": precision_table,
    "predictions": prediction_table,
    "neighbour": neighbour_table,
    "tuning": tuning_table,
    "first inferences": first_table,
    "plans for the first inference": cold_table,
}
"""The tables by the name that documents have for them."""


def mean_speedup(results: Sequence[Result]) -> tuple[float, int]:
    """Geometric mean of the faster peer's time divided by Sartor's, and of how many networks.

    Networks on which Sartor or every peer failed or was wrong are not in it.
    """
    ratios = [ratio for each in results if (ratio := over_the_faster(each)) is not None]
    return (geometric_mean(ratios) if ratios else float("nan")), len(ratios)


def over_the_faster(result: Result) -> float | None:
    """Time of the faster peer divided by Sartor's; None if Sartor, or every peer, failed or was wrong."""
    return min((ratio for peer in PEERS if (ratio := result.ratio(peer, OURS)) is not None), default=None)


def _speed_of(results: Sequence[Result], threads: int) -> Iterable[str]:
    columns = (
        thread_count(threads),
        "Sartor ms",
        ORT,
        OPENVINO,
        "IREE -O3",
        BEST_STOCK,
        "faster peer / Sartor",
        "error",
    )
    yield markdown_table((*columns, "commit"), [row for each in results for row in _speed_rows(each)])
    mean, count = mean_speedup(results)
    yield f"Geometric mean over the faster of the two peers: {mean:.2f}, {count} of {len(results)} networks."
    yield from failure_lines(results)
    yield from circumstance_lines(results)


def _speed_rows(result: Result) -> Iterable[list[str]]:
    """The network's row, and one with inputs and outputs in fixed memory where the call is a large part of the time."""
    yield _speed_row(result)
    bound, rival = result.entries.get(BOUND), result.entries.get(BOUND_ORT)
    if bound is not None and rival is not None and bound.seconds < _SHORT:
        ratio = result.ratio(BOUND_ORT, BOUND)
        shown = DASH if ratio is None else f"{ratio:.2f}"
        times = [_time(result, BOUND), _time(result, BOUND_ORT), *([DASH] * 3)]
        yield [f"{result.network}, bound memory", *times, shown, f"{bound.error:.0e}", result.circumstances.commit]


def _speed_row(result: Result) -> list[str]:
    ours = result.entries.get(OURS)
    ratio = over_the_faster(result)
    times = [_time(result, who) for who in (OURS, *PEERS, STOCK, BEST_STOCK)]
    shown = DASH if ratio is None else f"{ratio:.2f}"
    error = DASH if ours is None else f"{ours.error:.0e}"
    return [result.network, *times, shown, error, result.circumstances.commit]


def _precisions_of(result: Result) -> Iterable[str]:
    peers = (ORT, OPENVINO, "OpenVINO bf16", OPENVINO_INT8, "OpenVINO int8 and bf16")
    ours = (f"{name} within {budget}" for budget in BUDGETS for name in PRECISIONS)
    rows = [_precision_row(result, who) for who in (UNTUNED, "f32", *peers, *ours) if who in result.entries]
    heading = f"{result.network}, {thread_count(result.threads)}"
    yield markdown_table((heading, "ms", "error", "OpenVINO int8 / this", "layers"), rows)
    yield from failure_lines([result])
    yield from circumstance_lines([result])


def _precision_row(result: Result, who: str) -> list[str]:
    entry = result.entries[who]
    rival = result.ratio(OPENVINO_INT8, who)
    over = "" if entry.is_right or entry.allowed is None else f" (allowed {entry.allowed:.1e})"
    ratio = DASH if rival is None else f"{rival:.2f}"
    return [who, in_ms(entry.seconds), f"{entry.error:.1e}{over}", ratio, str(entry.facts.get("layers", ""))]


def _over(result: Result, who: str, to: str) -> str:
    ratio = result.ratio(who, to)
    return DASH if ratio is None else f"{ratio:.2f}"


def _time(result: Result, who: str) -> str:
    entry = result.entries.get(who)
    if entry is None:
        return DASH
    flags = f" ({entry.facts['flags']})" if who == BEST_STOCK else ""
    return f"{in_ms(entry.seconds)}{'' if entry.is_right else ' (wrong)'}{flags}"


def _fact(result: Result, name: str) -> float:
    return float(result.entries[OURS].facts[name])
