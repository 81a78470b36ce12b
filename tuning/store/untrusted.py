"""Checks untrusted measurements field by field, before they are merged into the database."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as validated

from sartor.tuning.records.measurement import MESSAGE_LIMIT, Measurement, MeasurementKey, Status

CLOCK_SKEW = 86400.0
"""Seconds that a measurement may lie in the future, as clocks differ. One far in the future would never be replaced."""

_Name = Annotated[str, Field(min_length=1, max_length=1000)]
# No measurement takes a year, and sums of more than that many seconds would be infinite.
_Sample = Annotated[float, Field(gt=0, lt=3e7, allow_inf_nan=False)]
_Samples = Annotated[tuple[_Sample, ...], Field(max_length=100_000)]
_Bytes = Annotated[int, Field(ge=0, lt=2**63)]
_Facts = Annotated[str, Field(max_length=1000, pattern=r"\A([a-z]+( [a-z_]+=[0-9]{1,18})*)?\z")]


@dataclass(frozen=True)
class Skipped:
    """A row that is not a measurement.

    Attributes:
        where: ``line 3``, ``row 3``.
        reason: what is wrong with it.
    """

    where: str
    reason: str


@validated(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class OutsideRow:
    """A measurement with its key, as a row of an export. An infinite error is ``"inf"``, as JSON has no infinity."""

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
    foreign_load: Annotated[float, Field(ge=0, lt=1e6, allow_inf_nan=False)] = 0.0

    def measurement(self) -> Measurement:
        """Convert to a measurement.

        Raises:
            ValueError: the status is OK and there are no samples.
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
            foreign_load=self.foreign_load,
        )


_ROW = TypeAdapter(OutsideRow)


def read_line(line: bytes, where: str, now: float) -> Measurement | Skipped:
    """Parse a line of an export; ``where`` describes it in ``Skipped``, ``now`` is in seconds since the epoch."""
    try:
        return _not_from_the_future(_ROW.validate_json(line).measurement(), now)
    except ValueError as error:
        return Skipped(where, reason(error))


def read_values(values: dict[str, Any], where: str, now: float) -> Measurement | Skipped:
    """Check the values of a row, by column; ``where`` and ``now`` as for ``read_line``."""
    try:
        return _not_from_the_future(OutsideRow(**values).measurement(), now)
    except ValueError as error:
        return Skipped(where, reason(error))


def reason(error: ValueError) -> str:
    """A short description of the first error."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else first["msg"]


def _not_from_the_future(measurement: Measurement, now: float) -> Measurement:
    if measurement.created > now + CLOCK_SKEW:
        raise ValueError("created: lies in the future")
    return measurement
