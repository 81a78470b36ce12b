"""The tables of the documents, from results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.gpu import read_rows
from benchmarks.gpu_table import table as gpu_table
from benchmarks.record.cold.tables import cold_table, first_table
from benchmarks.record.computed import computed_table
from benchmarks.record.experiments import (
    ALONE,
    BESIDE,
    BEST_STOCK,
    BOUND,
    BOUND_ORT,
    BUDGETS,
    DECIDED_AGAIN,
    OPENVINO,
    OPENVINO_BF16,
    OPENVINO_INT8,
    OPENVINO_MIXED,
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
from benchmarks.record.tuning import AGAIN, COLD

PEERS = (ORT, OPENVINO)
COMPUTED = (
    *("solvers", "learning", "primitives", "sharing", "sharing-measured"),
    *("sampling", "transfer", "settings", "layouts"),
)
"""Tables that ``python -m benchmarks.selection record`` computes."""

RECORDED = ("propagation", "tile-space", "cuda-kernels")
"""Tables that ``benchmarks.propagation``, ``benchmarks.tile_space`` and ``tools.cuda`` record."""

LLVMPIPE = Path("gpu/llvmpipe.json")
"""What ``python -m benchmarks.gpu`` wrote for Mesa's software driver."""

_PRECISE_PEERS = (*PEERS, OPENVINO_BF16, OPENVINO_INT8, OPENVINO_MIXED)
_OURS_WITHIN = {f"{name} within {budget}": budget for budget in BUDGETS for name in PRECISIONS}
_SHORT = 1e-4


def speed_table(experiment: str, folder: Path) -> str:
    """Times of every network beside all peers, for each number of threads, and what they say in all."""
    results = read_results(folder, experiment)
    parts = [
        part
        for threads in sorted({result.threads for result in results})
        for part in _speed_of([result for result in results if result.threads == threads], threads)
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
        ours = result.entries.get(OURS)
        if ours is None or not ours.is_right:
            continue
        foreseen, measured = ours.facts.get("foreseen seconds"), ours.facts.get("then measured seconds")
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
    """Seconds of compilations with an empty database and cache folder, and of the same command once more."""
    results = read_results(folder, "tuning")
    parts = []
    for threads in sorted({result.threads for result in results if result.entries}):
        own = [result for result in results if result.threads == threads and result.entries]
        cold = [each.entries[COLD].seconds for each in own]
        parts.append(
            markdown_table(
                (thread_count(threads), "cold s", "once more s", "the network, ms", "commit"),
                [_tuning_row(each) for each in own],
            )
        )
        parts.append(f"Median {median(cold):.0f} s, longest {max(cold):.0f} s, {len(own)} networks.")
    return (
        "\n\n".join([*parts, *failure_lines(results), *circumstance_lines(result.circumstances for result in results)])
        or NOTHING
    )


def _tuning_row(result: Result) -> list[str]:
    cold, again = result.entries[COLD], result.entries[AGAIN]
    shown = f"{cold.seconds:.0f}", f"{again.seconds:.1f}", f"{float(cold.facts.get('network ms', math.nan)):.3g}"
    return [result.network, *shown, result.circumstances.commit]


def neighbour_table(folder: Path) -> str:
    """Times of plans that were tuned beside a busy neighbour, over those of plans that were tuned alone."""
    results = read_results(folder, "neighbour")
    rows = [
        [
            result.network,
            thread_count(result.threads),
            *(_time(result, who) for who in (ALONE, BESIDE, DECIDED_AGAIN)),
            *(_over(result, who, ALONE) for who in (BESIDE, DECIDED_AGAIN)),
            result.circumstances.commit,
        ]
        for result in results
    ]
    if not rows:
        return NOTHING
    columns = ("network", "threads", f"{ALONE}, ms", BESIDE, DECIDED_AGAIN, "beside / alone", "again / alone", "commit")
    return "\n\n".join(
        (
            markdown_table(columns, rows),
            *failure_lines(results),
            *circumstance_lines(result.circumstances for result in results),
        )
    )


TABLES: Mapping[str, Callable[[Path], str]] = {
    "speed of the zoo": lambda folder: speed_table("zoo", folder),
    "speed of public models": lambda folder: speed_table("models", folder),
    "precision": precision_table,
    "predictions": prediction_table,
    "neighbour": neighbour_table,
    "tuning": tuning_table,
    "llvmpipe": lambda folder: gpu_table(read_rows(folder / LLVMPIPE)),
    "first inferences": first_table,
    "plans for the first inference": cold_table,
    **{name: partial(computed_table, name) for name in (*COMPUTED, *RECORDED)},
}
"""The tables by the name that documents have for them."""


def mean_speedup(results: Sequence[Result]) -> tuple[float, int]:
    """Geometric mean of the faster peer's time divided by Sartor's, and of how many networks.

    Networks on which Sartor or every peer failed or was wrong are not in it.
    """
    ratios = [ratio for result in results if (ratio := over_the_faster(result)) is not None]
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
    yield markdown_table((*columns, "commit"), [row for result in results for row in _speed_rows(result)])
    mean, count = mean_speedup(results)
    yield f"Geometric mean over the faster of the two peers: {mean:.2f}, {count} of {len(results)} networks."
    yield from failure_lines(results)
    yield from circumstance_lines(result.circumstances for result in results)


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
    rows = [
        _precision_row(result, who) for who in (UNTUNED, "f32", *_PRECISE_PEERS, *_OURS_WITHIN) if who in result.entries
    ]
    heading = f"{result.network}, {thread_count(result.threads)}, at {result.circumstances.commit}"
    yield markdown_table(
        (heading, "ms", "error", "OpenVINO int8 / this", "fastest peer so exact / this", "layers"), rows
    )
    yield from failure_lines([result])
    yield from circumstance_lines([result.circumstances])


def _precision_row(result: Result, who: str) -> list[str]:
    entry = result.entries[who]
    over = "" if entry.is_right or entry.allowed is None else f" (allowed {entry.allowed:.1e})"
    ratio, layers = _over(result, OPENVINO_INT8, who), str(entry.facts.get("layers", ""))
    return [who, in_ms(entry.seconds), f"{entry.error:.1e}{over}", ratio, _over_so_exact(result, who), layers]


def _over_so_exact(result: Result, who: str) -> str:
    """The time of the fastest peer that keeps to an entry's budget divided by the entry's, and who that is.

    A budget that is OpenVINO's own error in 8 bits was taken from other inputs, and OpenVINO keeps to it by definition.
    """
    allowed, budget = result.entries[who].allowed, _OURS_WITHIN.get(who)
    if budget is None or allowed is None:
        return ""
    kept = [
        precise_peer
        for precise_peer in _PRECISE_PEERS
        if precise_peer in result.entries and result.entries[precise_peer].error <= allowed
    ]
    rivals = [*kept, *([OPENVINO_INT8] if budget == BUDGETS[1] else [])]
    ratios = {rival: ratio for rival in rivals if (ratio := result.ratio(rival, who)) is not None}
    if not ratios:
        return DASH
    fastest = min(ratios, key=lambda ratio: ratios[ratio])
    return f"{ratios[fastest]:.2f} ({fastest})"


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
