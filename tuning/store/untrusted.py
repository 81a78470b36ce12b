"""Measurements from outside: checked field by field before they may enter the database."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as validated

from sartor.tuning.records.measurement import MESSAGE_LIMIT, Measurement, MeasurementKey, Status

CLOCK_SKEW = 86400.0
"""Seconds a measurement may lie in the future: clocks differ, but what is newest for ever is never replaced."""

_Name = Annotated[str, Field(min_length=1, max_length=1000)]
_Sample = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Samples = Annotated[tuple[_Sample, ...], Field(max_length=100_000)]
_Bytes = Annotated[int, Field(ge=0, lt=2**63)]
_Facts = Annotated[str, Field(max_length=1000, pattern=r"\A([a-z]+( [a-z]+=[0-9]{1,18})*)?\z")]


@dataclass(frozen=True)
class Skipped:
    """A row that was no measurement.

    Attributes:
        where: ``line 3``, ``row 3``.
        reason: what was wrong with it.
    """

    where: str
    reason: str


@validated(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class OutsideRow:
    """A measurement and its key, as an export spells them; an infinite error is ``"inf"``, JSON has no other."""

    task: _Name
    variant: _Name
    source: _Name
    hardware: _Name
    threads: Annotated[int, Field(ge=1, lt=2**31)]
    runtime: _Name
    backend: _Name
    status: Annotated[Status, Field(strict=False)]
    samples: _Samples
    baseline_samples: _Samples
    error: Annotated[float, Field(ge=0)] | Literal["inf"] | None
    message: Annotated[str, Field(max_length=MESSAGE_LIMIT)]
    created: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    packed_bytes: _Bytes
    facts: _Facts = ""

    def measurement(self) -> Measurement:
        """As what it enters the database.

        Raises:
            ValueError: it is OK without samples.
        """
        return Measurement(
            key=MeasurementKey(*(getattr(self, field.name) for field in fields(MeasurementKey))),
            status=self.status,
            samples=self.samples,
            baseline_samples=self.baseline_samples,
            error=None if self.error is None else float(self.error),
            message=self.message,
            created=self.created,
            packed_bytes=self.packed_bytes,
            facts=self.facts,
        )


_ROW = TypeAdapter(OutsideRow)


def read_line(line: bytes, where: str, now: float) -> Measurement | Skipped:
    """The measurement in a line of JSON."""
    try:
        return _not_from_the_future(_ROW.validate_json(line).measurement(), now)
    except ValueError as error:
        return Skipped(where, reason(error))


def read_values(values: dict[str, Any], where: str, now: float) -> Measurement | Skipped:
    """The measurement in values by column."""
    try:
        return _not_from_the_future(OutsideRow(**values).measurement(), now)
    except ValueError as error:
        return Skipped(where, reason(error))


def reason(error: ValueError) -> str:
    """The first thing that is wrong, in short."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else first["msg"]


def _not_from_the_future(measurement: Measurement, now: float) -> Measurement:
    if measurement.created > now + CLOCK_SKEW:
        raise ValueError("created: lies in the future")
    return measurement
