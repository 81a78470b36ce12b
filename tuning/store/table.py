"""Measurements as a table in CSV, which spreadsheets, pandas, DuckDB and Arrow read; it cannot be imported again.

A row is a measurement. The parts of the variant's descriptor are columns of their own, so that queries need not parse
it; samples are summarised.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from pathlib import Path
from statistics import quantiles
from typing import TextIO

from sartor.codegen.ir.variants.descriptor import Descriptor
from sartor.tuning.records.measurement import Measurement, Status, typical_time

COLUMNS = (
    *("task", "variant", "device", "dtype", "operation", "routine", "status", "seconds", "least", "median"),
    *("upper_quartile", "samples", "stock_seconds", "error", "foreign_load", "packed_bytes", "threads", "backend"),
    *("hardware", "runtime", "created", "facts", "message"),
)
# A spreadsheet takes a cell that begins so for a formula; messages come from compilers, names from models.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_table(file: TextIO, measurements: Iterable[Measurement]) -> int:
    """Write measurements as CSV with a header; returns their number. Unknown values are empty."""
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(COLUMNS)
    written = 0
    for measurement in measurements:
        rows.writerow(_row(measurement))
        written += 1
    return written


def is_table(path: Path) -> bool:
    """Whether the file begins as ``write_table`` writes it."""
    with path.open("rb") as file:
        return file.readline(1 << 12).rstrip(b"\n") == ",".join(COLUMNS).encode()


def _row(measurement: Measurement) -> list[object]:
    key, ok = measurement.key, measurement.status is Status.OK
    parts = Descriptor.parse(key.variant)
    named = (parts.device, parts.dtype, parts.operation, parts.routine) if parts else ("",) * 4
    stock = typical_time(measurement.baseline_samples) if measurement.baseline_samples else None
    error = None if measurement.error is None else measurement.error if math.isfinite(measurement.error) else "inf"
    values = (
        *(key.task, key.variant, *named, measurement.status.value),
        *(_times(measurement.samples) if ok else (None,) * 4),
        *(len(measurement.samples), stock, error, measurement.foreign_load, measurement.packed_bytes),
        *(
            key.threads,
            key.backend,
            key.hardware,
            key.runtime,
            measurement.created,
            measurement.facts,
            measurement.message,
        ),
    )
    return [_harmless(value) for value in values]


def _times(samples: tuple[float, ...]) -> tuple[float, ...]:
    """Lower quartile, least, median and upper quartile, in seconds."""
    if len(samples) == 1:
        return (samples[0],) * 4
    low, middle, high = quantiles(samples, n=4, method="inclusive")
    return low, min(samples), middle, high


def _harmless(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
