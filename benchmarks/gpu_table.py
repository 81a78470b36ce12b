"""Results of ``benchmarks.gpu`` as a table of Markdown: ``python -m benchmarks.gpu_table results.json``.

Each network is a row; the page about GPUs has the table of ``benchmarks/results/gpu/llvmpipe.json``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.gpu import OURS, STOCK, STOCK_CPU, Row, geometric_mean

_HEAD = (
    "network",
    "stock IREE",
    "Sartor",
    "faster than stock",
    "stock IREE on the CPU",
    "times of that",
    "error",
    "tuning, s",
)


def read_rows(path: Path) -> list[Row]:
    """The rows that a run wrote."""
    return [Row(**each) for each in json.loads(path.read_text(encoding="utf-8"))]


def table(rows: Sequence[Row], *, by_clock: bool = False) -> str:
    """The table, in milliseconds, and the geometric mean of the speed-ups over stock code that is right.

    Tuning is the processors' time, or the elapsed one if the networks were timed ``by_clock``.
    """
    lines = [_HEAD, ("---",) + ("---:",) * (len(_HEAD) - 1), *(_cells(row, by_clock=by_clock) for row in rows)]
    mean = geometric_mean(rows, STOCK)
    ending = f"\nGeometric mean over stock code on the device, where that is right: {mean:.1f}x.\n" if mean else ""
    return "".join(_line(each) for each in lines) + ending


def _cells(row: Row, *, by_clock: bool) -> tuple[str, ...]:
    gain, share = row.speedup(STOCK), row.speedup(STOCK_CPU)
    return (
        row.network,
        _milliseconds(row, STOCK),
        _milliseconds(row, OURS),
        "" if STOCK not in row.milliseconds else "wrong" if gain is None else f"{gain:.1f}x",
        _milliseconds(row, STOCK_CPU),
        "" if share is None else f"{1 / share:.2f}",
        f"{row.errors[OURS]:.0e}".replace("e-0", "e-"),
        f"{row.tuning_seconds if by_clock else row.tuning_processor_seconds:.0f}",
    )


def _milliseconds(row: Row, who: str) -> str:
    found = row.milliseconds.get(who)
    return "" if found is None else f"{found:.3g}" if found < 1000 else f"{found:.0f}"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    print(table([row for path in sys.argv[1:] for row in read_rows(Path(path))]), end="")
