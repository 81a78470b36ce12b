"""Tables that are computed of measured ones, as the solvers' comparison is: of what, and by which code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from benchmarks.record.circumstances import Circumstances
from benchmarks.record.markdown import NOTHING, markdown_table
from sartor.errors import UsageError
from sartor.publishing import written

Cell = str | int | float | None
FOLDER = "computed"
"""Where they are kept, below the folder of results."""

_DIGITS = 3


@dataclass(frozen=True)
class Computed:
    """What one computation gave.

    Attributes:
        name: of the table.
        circumstances: where, when and by which command it was computed.
        source: what it was computed of, in words.
        columns: headings.
        rows: a cell for each column; numbers are shown with three digits.
    """

    name: str
    circumstances: Circumstances
    source: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def save(self, folder: Path) -> Path:
        """Write it as JSON, whole or not at all; returns the file."""
        path = folder / FOLDER / f"{self.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        with written(path) as new:
            new.write_bytes(_ADAPTER.dump_json(self, indent=1) + b"\n")
        return path


_ADAPTER = TypeAdapter(Computed)


def read_computed(folder: Path, name: str = "*") -> list[Computed]:
    """The tables that were recorded, or the one of that name.

    Raises:
        UsageError: if a file is damaged.
    """
    return [_read(path) for path in sorted((folder / FOLDER).glob(f"{name}.json"))]


def _read(path: Path) -> Computed:
    try:
        return _ADAPTER.validate_json(path.read_bytes())
    except ValidationError as error:
        raise UsageError(f"'{path}' is no table: {error}") from None


def computed_table(name: str, folder: Path) -> str:
    """The table that was recorded under a name.

    Raises:
        UsageError: if the file is damaged.
    """
    found = next(iter(read_computed(folder, name)), None)
    if found is None:
        return NOTHING
    made = found.circumstances
    line = f"Computed on {made.date} at {made.commit} of {found.source}, on {made.machine}."
    return f"{markdown_table(found.columns, [_shown(each) for each in found.rows])}\n\n{line}"


def _shown(row: Sequence[Cell]) -> list[str]:
    return [_cell(each) for each in row]


def _cell(value: Cell) -> str:
    if isinstance(value, float):
        return f"{value:.{_DIGITS}g}" if abs(value) < 10**_DIGITS else f"{value:.0f}"
    return "" if value is None else str(value)
