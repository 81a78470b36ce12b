"""The candidates of a layer: their times, and why those that were not chosen lost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import quantiles

from sartor.codegen.ir.variants.descriptor import device_in, dtype_in
from sartor.tuning.records.measurement import Measurement, Status, shorten
from sartor.tuning.store.tasks import TaskResult

_SHOWN_OF_MESSAGE = 400
# Below this, two times are the same: repeated measurements of one variant differ as much.
_SAME = 0.01
_ENDED = {
    Status.COMPILE_FAILED: "does not compile",
    Status.CRASHED: "crashes",
    Status.TIMEOUT: "takes too long",
    Status.OUT_OF_MEMORY: "runs out of memory",
    Status.WRONG_RESULT: "is wrong",
}


@dataclass(frozen=True)
class Candidate:
    """A variant that was tried.

    Attributes:
        variant: descriptor.
        status: of its measurement.
        seconds: lower quartile of its times, scaled to candidate 0 of the same run; None if it has none.
        spread: least time, quartiles, and most, scaled likewise; empty without times.
        samples: number of times.
        error: relative error against the reference; None if unknown.
        load: processors that other programs took meanwhile.
        chosen: whether the layer runs it.
        reason: why not, as a clause; empty for the chosen one.
    """

    variant: str
    status: str
    seconds: float | None
    spread: tuple[float, ...]
    samples: int
    error: float | None
    load: float
    chosen: bool
    reason: str


def candidates_of(result: TaskResult | None, chosen: str | None) -> tuple[Candidate, ...]:
    """Candidates of a layer: the measured ones by time, then those that failed.

    Args:
        result: the measurements of the layer's task; None if there are none.
        chosen: descriptor of the variant that the layer runs; None if the whole model is lowered as one.
    """
    tried = [] if result is None else [_tried(variant, result, chosen) for variant in result.variants]
    tried.sort(key=lambda candidate: (candidate.seconds is None, candidate.seconds or 0.0, candidate.variant))
    return tuple(tried)


def _tried(measurement: Measurement, result: TaskResult, chosen: str | None) -> Candidate:
    name = measurement.key.variant
    stock = result.stock_seconds
    ok = measurement.status is Status.OK
    seconds = None if not ok else measurement.time if stock is None else measurement.time_at(stock)
    return Candidate(
        variant=name,
        status=measurement.status.value,
        seconds=seconds,
        spread=_spread(measurement.samples, seconds / measurement.time) if seconds is not None else (),
        samples=len(measurement.samples),
        error=measurement.error if measurement.error is not None and math.isfinite(measurement.error) else None,
        load=measurement.foreign_load,
        chosen=name == chosen,
        reason="" if name == chosen else _reason(measurement, seconds, result, chosen),
    )


def _spread(samples: tuple[float, ...], scale: float) -> tuple[float, ...]:
    middle = quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else [samples[0]] * 3
    return tuple(seconds * scale for seconds in (min(samples), *middle, max(samples)))


def _reason(measurement: Measurement, seconds: float | None, result: TaskResult, chosen: str | None) -> str:
    """Why a variant that was tried is not the chosen one."""
    if seconds is None:
        message = shorten(measurement.message.strip(), _SHOWN_OF_MESSAGE)
        ended = _ENDED.get(measurement.status, "was disturbed")
        return f"{ended}: {message}" if message else ended
    if chosen is None:
        return "the whole model was faster by stock IREE than any plan of layers"
    taken = _seconds_of(chosen, result)
    if taken is None:
        return "the chosen one was not measured"
    name = measurement.key.variant
    where = "" if device_in(name) == device_in(chosen) else f" on {device_in(name)}, apart from transfers"
    if seconds > taken * (1 + _SAME):
        return f"{seconds / taken:.2f} times as slow{where}"
    if dtype_in(name) != dtype_in(chosen):
        return f"computes in {dtype_in(name)}, which the allowed error, or the plan as a whole, excludes"
    if seconds >= taken * (1 - _SAME):
        return f"as fast alone{where}; the conversions on its edges, or its time in the network, cost as much or more"
    cost = f"{(taken - seconds) * 1e3:.3f} ms"
    return f"{cost} faster alone{where}, but the conversions on its edges, or its time in the network, cost more"


def _seconds_of(name: str, result: TaskResult) -> float | None:
    measurements = [
        variant for variant in result.variants if variant.key.variant == name and variant.status is Status.OK
    ]
    if not measurements:
        return None
    return measurements[0].time if result.stock_seconds is None else measurements[0].time_at(result.stock_seconds)
