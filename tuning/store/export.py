"""Exports measurements as JSON lines, one measurement per line, in the order of their keys.

Exports are text so that they can be kept in git: a new measurement is one more line in a diff, branches merge, and grep
works. All values are restored exactly. The first line is a header; it may be repeated, so exports can be concatenated.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO, Literal, TextIO

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass as validated

from sartor.errors import UsageError
from sartor.tuning.records.measurement import Measurement
from sartor.tuning.store.sqlite import errors
from sartor.tuning.store.untrusted import Skipped, read_line

VERSION = 3
FORMAT: Literal["sartor measurements"] = "sartor measurements"
LONGEST_LINE = 4 << 20
"""Bytes; longer lines are not measurements."""


@validated(frozen=True)
class Header:
    """The first line of an export."""

    format: Literal["sartor measurements"]
    version: int


_HEADER = TypeAdapter(Header)


def write_export(file: TextIO, measurements: Iterable[Measurement]) -> int:
    """Write measurements as an export; returns their number."""
    file.write(_line(asdict(Header(FORMAT, VERSION))))
    written = 0
    for measurement in measurements:
        values = asdict(measurement)
        values = {**values.pop("key"), **values}
        file.write(_line({**values, "error": "inf" if measurement.error == math.inf else measurement.error}))
        written += 1
    return written


def _line(values: dict[str, object]) -> str:
    return json.dumps(values, allow_nan=False, separators=(", ", ": ")) + "\n"


def is_export(path: Path) -> bool:
    """Whether the file is an export, of any version."""
    with path.open("rb") as file:
        return _header(file.readline(LONGEST_LINE)) is not None


def read_export(path: Path, now: float) -> Iterator[Measurement | Skipped]:
    """Read the measurements in an untrusted file; lines that are not measurements are yielded as ``Skipped``.

    Args:
        path: the export.
        now: seconds since the epoch; measurements from the future are skipped.

    Raises:
        UsageError: the file is not an export, or has a newer version.
    """
    with path.open("rb") as file:
        lines = enumerate(_lines(file), 1)
        _, first = next(lines, (1, None))
        _check_header(path, first, required=True)
        for number, line in lines:
            if line is None:
                yield Skipped(f"line {number}", f"longer than {LONGEST_LINE >> 20} MiB")
            elif line.strip() and not _check_header(path, line, required=False):
                yield read_line(line, f"line {number}", now)


def _lines(file: BinaryIO) -> Iterator[bytes | None]:
    """Yield lines; None for a line that is too long."""
    while line := file.readline(LONGEST_LINE):
        if len(line) < LONGEST_LINE:
            yield line
        else:
            while line and not line.endswith(b"\n"):
                line = file.readline(LONGEST_LINE)
            yield None


def _header(line: bytes | None) -> Header | None:
    # Only a header starts with this, so measurements are not parsed twice.
    if line is None or not line.startswith(b'{"format"'):
        return None
    try:
        return _HEADER.validate_json(line)
    except ValueError:
        return None


def _check_header(path: Path, line: bytes | None, required: bool) -> bool:
    """Whether the line is a header; refused if its version is too new, or if a header is required and missing."""
    header = _header(line)
    if header is None and required:
        raise errors.not_importable(str(path))
    if header is not None and header.version > VERSION:
        raise UsageError(
            f"'{path}' holds measurements in version {header.version} of the export, this Sartor knows versions up to "
            f"{VERSION}: update Sartor, or export again with this version"
        )
    return header is not None
