"""Results of ``benchmarks.gpu`` as a table of Markdown: ``python -m benchmarks.gpu_table results.json``.

Each network is a row; the page about GPUs has the table of ``benchmarks/results/gpu/llvmpipe.json``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.gpu import OURS, STOCK, STOCK_CPU, Row, geometric_mean, read_rows
from benchmarks.record.markdown import NOTHING, circumstance_lines, failure_line

_HEAD = (
    "network",
    "stock IREE",
    "Sartor",
    "faster than stock",
    "stock IREE on the CPU",
    "times of that",
    "error",
    "tuning, s",
    "commit",
)


# Known networks of all kinds of layers, of which users compare single ones.
_KNOWN = (
    *("lenet5", "squeezenet", "mobilenet_v1", "mobilenet_v2", "mobilenet_v3"),
    *("shufflenet_v2", "resnet18", "bert"),
)
_NEAR = 4.0


def table(rows: Sequence[Row]) -> str:
    """The table, in milliseconds, the geometric mean of the speed-ups over stock code that is right, and what was
    measured how."""
    if not rows:
        return NOTHING
    cells = [_cells(row) for row in rows if OURS in row.milliseconds]
    lines = [_HEAD, ("---",) + ("---:",) * (len(_HEAD) - 2) + ("---",), *cells]
    failures = "\n".join(failure_line(row.network, who, reason) for row in rows for who, reason in row.failures.items())
    made = circumstance_lines(row.made for row in rows if row.made is not None)
    return "\n\n".join(filter(None, ["\n".join(map(_line, lines)), _means(rows), failures, *made]))


def _means(rows: Sequence[Row]) -> str:
    mean = geometric_mean(rows, STOCK)
    over = "Geometric mean over stock code on the device, where that is right"
    return "" if mean is None else f"{over}: {mean:.1f}x.{_of_known(rows)}"


def _of_known(rows: Sequence[Row]) -> str:
    """What the known networks alone give; nothing if one of them was not run."""
    known = [row for row in rows if row.network in _KNOWN]
    mean = geometric_mean(known, STOCK)
    if {row.network for row in known} != set(_KNOWN) or mean is None:
        return ""
    over, beside = ([row for row in known if row.speedup(peer) is not None] for peer in (STOCK, STOCK_CPU))
    near = sum((row.speedup(STOCK_CPU) or 0.0) >= 1 / _NEAR for row in beside)
    within = f"{near} of the {len(beside)} with stock code on the CPU are within {_NEAR:.0f} times of that"
    return f" Of {', '.join(_KNOWN)} it is {mean:.1f}x over {len(over)}, and {within}."


def _cells(row: Row) -> tuple[str, ...]:
    gain, share = row.speedup(STOCK), row.speedup(STOCK_CPU)
    return (
        row.network,
        _milliseconds(row, STOCK),
        _milliseconds(row, OURS),
        "" if STOCK not in row.milliseconds else "wrong" if gain is None else f"{gain:.1f}x",
        _milliseconds(row, STOCK_CPU),
        "" if share is None else f"{1 / share:.2f}",
        f"{row.errors[OURS]:.0e}".replace("e-0", "e-"),
        f"{row.tuning_seconds:.0f}",
        "" if row.made is None else row.made.commit,
    )


def _milliseconds(row: Row, who: str) -> str:
    found = row.milliseconds.get(who)
    return "" if found is None else f"{found:.3g}" if found < 1000 else f"{found:.0f}"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(table([row for path in sys.argv[1:] for row in read_rows(Path(path))]))
