"""Converts measurements to rows of the tuning database's table and back."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import astuple, fields, replace
from types import UnionType

from sartor.codegen.ir.variants.renamed import renamed
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status

KEY_COLUMNS = tuple(field.name for field in fields(MeasurementKey))
VALUE_COLUMNS = (
    "status",
    "samples",
    "baseline_samples",
    "error",
    "message",
    "created",
    "packed_bytes",
    "facts",
    "foreign_load",
)
COLUMNS = KEY_COLUMNS + VALUE_COLUMNS
# Types of columns that do not hold text.
_TYPES: Mapping[str, type | UnionType] = {
    "threads": int,
    "samples": bytes,
    "baseline_samples": bytes,
    "error": float | int | None,
    "created": float | int,
    "packed_bytes": int,
    "foreign_load": float | int,
}

SELECT = f"SELECT {', '.join(COLUMNS)} FROM measurements"
SELECT_ONE = f"{SELECT} WHERE " + " AND ".join(f"{column} = ?" for column in KEY_COLUMNS)
INSERT = f"INSERT INTO measurements ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
INSERT_OR_REPLACE = INSERT.replace("INSERT", "INSERT OR REPLACE", 1)

CONTENT_BYTES = " + ".join(
    f"length({column})"
    for column in (
        *("samples", "baseline_samples", "message", "task"),
        *("variant", "source", "hardware", "runtime", "backend", "facts"),
    )
)
"""SQL expression for the bytes of a row's content, without SQLite's overhead."""

Row = tuple[object, ...]


def to_row(measurement: Measurement) -> Row:
    """The measurement's values of ``COLUMNS``."""
    return (
        *astuple(measurement.key),
        measurement.status.value,
        _pack(measurement.samples),
        _pack(measurement.baseline_samples),
        measurement.error,
        measurement.message,
        measurement.created,
        measurement.packed_bytes,
        measurement.facts,
        measurement.foreign_load,
    )


def from_row(row: Row) -> Measurement:
    """The measurement in values of ``COLUMNS``.

    Raises:
        ValueError: the values are not a valid measurement.
    """
    for column, value in zip(COLUMNS, row, strict=True):
        # SQLite keeps a value of any type in any column.
        if not isinstance(value, _TYPES.get(column, str)):
            raise ValueError(f"{column} is {type(value).__name__}")
    stored = MeasurementKey(*row[: len(KEY_COLUMNS)])  # type: ignore[arg-type]
    key = replace(stored, variant=renamed(stored.variant))
    status, samples, baseline, *rest = row[len(KEY_COLUMNS) :]
    try:
        return Measurement(key, Status(status), unpack(samples), unpack(baseline), *rest)  # type: ignore[arg-type]
    except (ValueError, TypeError) as error:
        raise ValueError(f"measurement of {key.variant}: {error}") from error


def _pack(samples: tuple[float, ...]) -> bytes:
    return struct.pack(f"<{len(samples)}d", *samples)


def unpack(blob: object) -> tuple[float, ...]:
    """Decode samples, stored as little-endian float64.

    Raises:
        ValueError: ``blob`` is something else.
    """
    if not isinstance(blob, bytes) or len(blob) % 8:
        raise ValueError("samples are not a blob of float64")
    return struct.unpack(f"<{len(blob) // 8}d", blob)
