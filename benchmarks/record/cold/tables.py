"""Tables of first inferences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import comb
from pathlib import Path

from benchmarks.cold_plans import ColdPlan, overlapped
from benchmarks.record.markdown import (
    DASH,
    NOTHING,
    circumstance_lines,
    failure_lines,
    in_ms,
    markdown_table,
    thread_count,
)
from benchmarks.record.results import Entry, Result, read_results
from sartor.first_inference.cold_bench import CACHED, DROPPED

_LATENCY, _COLD = overlapped(ColdPlan.LATENCY), overlapped(ColdPlan.KERNELS)
_DOUBT = 0.05
_COLUMNS = (CACHED, DROPPED, "processor", "second", "third", "slowest", "later", "process", "MiB", "compiled in s")


def first_table(folder: Path) -> str:
    """Times from opening a model to its first result, one table for each network."""
    results = read_results(folder, "first")
    parts = [part for result in results for part in _first_of(result)]
    return (
        "\n\n".join((*parts, *failure_lines(results), *circumstance_lines(result.circumstances for result in results)))
        or NOTHING
    )


def cold_table(folder: Path) -> str:
    """Plans for the first inference beside those for later ones, by whole processes in turn."""
    results = [result for result in read_results(folder, "cold") if f"{_COLD}, {DROPPED}" in result.entries]
    rows = [_cold_row(result) for result in results]
    if not rows:
        return NOTHING
    compared = (*_compared(DROPPED), *_compared(CACHED), "of a later one")
    columns = ("network", "MiB", "for the first, MiB", *compared, "commit")
    parts = [markdown_table(columns, rows), *(_verdict(results, state) for state in (DROPPED, CACHED))]
    return "\n\n".join(
        (*parts, *failure_lines(results), *circumstance_lines(result.circumstances for result in results))
    )


def _first_of(result: Result) -> Iterator[str]:
    names = dict.fromkeys(entry.rpartition(", ")[0] for entry in result.entries)
    heading = f"{result.network}, {thread_count(result.threads)}, {result.circumstances.commit}"
    yield markdown_table((heading, *_COLUMNS), [[name, *_first_row(result, name)] for name in names])


def _first_row(result: Result, name: str) -> Iterable[str]:
    cached, dropped = result.entries[f"{name}, {CACHED}"], result.entries.get(f"{name}, {DROPPED}")
    if "inference 1" not in cached.facts:
        return [*([DASH] * 7), _fact(cached, "process seconds"), DASH, DASH]
    times = [_spread(cached), DASH if dropped is None else _spread(dropped)]
    later = ("inference 2", "inference 3", "slowest between", "later inference")
    facts = ("processor seconds", *later, "process seconds")
    sizes = [_plain(cached, "module MiB"), _plain(cached, "compile seconds")]
    return [*times, *(_fact(cached, fact) for fact in facts), *sizes]


def _spread(entry: Entry) -> str:
    """The median, and in brackets the least of all processes."""
    return f"{in_ms(entry.seconds)} ({in_ms(min(entry.samples[0]))}){_judgement(entry)}"


def _judgement(entry: Entry) -> str:
    return "" if entry.is_right else " (wrong)"


def _compared(files: str) -> tuple[str, str, str]:
    return f"{files}: for later ones", "for the first", "ratio"


def _cold_row(result: Result) -> list[str]:
    sizes = [_plain(result.entries[f"{who}, {CACHED}"], "module MiB") for who in (_LATENCY, _COLD)]
    times = [text for state in (DROPPED, CACHED) for text in (*_times(result, state), _over(result, state))]
    return [result.network, *sizes, *times, _over_later(result), result.circumstances.commit]


def _over_later(result: Result) -> str:
    """Load and first inference by a later one, of the plan for later ones with its file in memory."""
    entry = result.entries[f"{_LATENCY}, {CACHED}"]
    later = entry.facts.get("later inference")
    return f"{entry.seconds / float(later):.2f}" if later and entry.is_right else DASH


def _times(result: Result, files: str) -> list[str]:
    entries = (result.entries[f"{who}, {files}"] for who in (_LATENCY, _COLD))
    return [f"{in_ms(entry.seconds)}{_judgement(entry)}" for entry in entries]


def _over(result: Result, files: str) -> str:
    ratio = result.ratio(f"{_COLD}, {files}", f"{_LATENCY}, {files}")
    return DASH if ratio is None else f"{ratio:.2f}"


def _verdict(results: Sequence[Result], files: str) -> str:
    """How often one plan is faster beyond noise."""
    better = sum(_is_faster(result, _COLD, _LATENCY, files) for result in results)
    worse = sum(_is_faster(result, _LATENCY, _COLD, files) for result in results)
    return (
        f"Files {files}: the plan for the first inference is faster for {better} of {len(results)} networks and slower "
        f"for {worse}; for the others the rounds differ too much to tell (sign test, {_DOUBT:.0%})."
    )


def _is_faster(result: Result, who: str, other: str, files: str) -> bool:
    """Whether one is right, and was faster in more rounds than chance explains: a one-sided sign test."""
    entries = [result.entries[f"{each}, {files}"] for each in (who, other)]
    mine, others = (entry.samples[0] for entry in entries)
    if not entries[0].is_right:
        return False
    won, count = sum(one < two for one, two in zip(mine, others, strict=True)), len(mine)
    as_often_by_chance: int = sum(comb(count, index) for index in range(won, count + 1))
    return as_often_by_chance < _DOUBT * 2.0**count


def _fact(entry: Entry, name: str) -> str:
    return in_ms(float(entry.facts[name])) if name in entry.facts else DASH


def _plain(entry: Entry, name: str) -> str:
    return f"{float(entry.facts[name]):#.3g}".rstrip(".") if name in entry.facts else DASH
