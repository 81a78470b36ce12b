"""Writes rows of results as CSV and as Markdown tables, and plots them."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from sartor.errors import UsageError

_SALT = "sartor"
_MARKED = 12
Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """A line of a plot: ``band`` are the lowest and highest values at each of its points."""

    label: str
    points: Sequence[Point]
    band: Sequence[Point] = ()


@dataclass(frozen=True)
class Axes:
    """A plot's title and axes."""

    title: str
    x: str
    y: str
    log_x: bool = False
    log_y: bool = False


def write_csv(rows: Sequence[Any], path: Path) -> Path:
    """Write instances of one dataclass as CSV, a column for each field, numbers with six digits.

    Raises:
        UsageError: if the file cannot be written.
    """
    names = _names(rows)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(names)
            writer.writerows([_text(getattr(row, name), 6) for name in names] for row in rows)
    except OSError as error:
        raise UsageError(f"cannot write '{path}': {error.strerror}; choose a directory that can be written") from error
    return path


def markdown(rows: Sequence[Any]) -> str:
    """Instances of one dataclass as a Markdown table, numbers with three digits."""
    names = _names(rows)
    lines = [" | ".join(name.replace("_", " ") for name in names), " | ".join("---" for _ in names)]
    lines += [" | ".join(_text(getattr(row, name), 3) for name in names) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def plot_lines(panels: Mapping[Axes, Sequence[Line]], path: Path) -> Path:
    """Draw lines in panels side by side.

    Raises:
        UsageError: if matplotlib is not installed.
    """
    with _figure(len(panels), path) as axes:
        for axis, (described, lines) in zip(axes, panels.items(), strict=True):
            for line in lines:
                xs = [x for x, _ in line.points]
                marker = "." if len(xs) <= _MARKED else None
                axis.plot(xs, [y for _, y in line.points], marker=marker, label=line.label)
                if line.band:
                    axis.fill_between(xs, [low for low, _ in line.band], [high for _, high in line.band], alpha=0.2)
            _describe(axis, described)
    return path


def plot_bars(axes: Axes, groups: Sequence[str], bars: Mapping[str, Sequence[float]], path: Path) -> Path:
    """Draw a bar for each label in every group.

    Raises:
        UsageError: if matplotlib is not installed.
    """
    width = 0.8 / len(bars)
    with _figure(1, path, wide=True) as (axis,):
        for number, (label, values) in enumerate(bars.items()):
            axis.bar([place + width * number for place in range(len(groups))], values, width, label=label)
        middle = (0.8 - width) / 2
        axis.set_xticks([place + middle for place in range(len(groups))], groups, rotation=60, ha="right")
        _describe(axis, axes)
    return path


@contextmanager
def _figure(panels: int, path: Path, *, wide: bool = False) -> Iterator[Sequence[Any]]:
    """Axes of a new figure, which is written to ``path`` at the end: the same rows give the same bytes."""
    try:
        matplotlib: Any = importlib.import_module("matplotlib")
        figures: Any = importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise UsageError(
            "plots need matplotlib, which is not installed; the figures are in the CSV files, "
            "for plots run pip install 'sartor[plots]'"
        ) from error
    with matplotlib.rc_context({"svg.hashsalt": _SALT, "svg.fonttype": "none", "font.size": 8}):
        figure = figures.Figure(figsize=(10.0 if wide else 3.6 * max(panels, 2), 3.6), layout="constrained")
        yield figure.subplots(1, panels, squeeze=False)[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})


def _describe(axis: Any, described: Axes) -> None:
    axis.set_title(described.title)
    axis.set_xlabel(described.x)
    axis.set_ylabel(described.y)
    if described.log_x:
        axis.set_xscale("log")
    if described.log_y:
        axis.set_yscale("log")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=7)


def _names(rows: Sequence[Any]) -> list[str]:
    return [field.name for field in fields(rows[0])] if rows else []


def _text(value: object, digits: int) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    return "" if value is None else str(value)
