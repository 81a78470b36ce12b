"""Measurements for the tests of the store."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from sartor.tuning.records.hardware import host
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status, runtime_key

KEY = MeasurementKey("task", "cpu:f32/conv2d.nhwc{tile=4}", "source", "machine", 1, "runtime 1", "cpu/host")
MEASUREMENT = Measurement(
    KEY,
    Status.OK,
    samples=(0.1, 1e-300, math.pi, 5e-324),
    baseline_samples=(1 / 3,),
    error=1e-7,
    created=1000.5,
    packed_bytes=2**40,
)
FAILURE = Measurement(
    replace(KEY, variant="cpu:f32/conv2d.winograd{tile=6}"),
    Status.CRASHED,
    message="SIGSEGV\n\0\udcff 'quoted' \N{SNOWMAN}",
    created=2000.0,
)


def keyed(measurement: Measurement, **changes: Any) -> Measurement:
    """The measurement under another key."""
    return replace(measurement, key=replace(measurement.key, **changes))


def of_here(measurement: Measurement) -> Measurement:
    """The measurement as if this machine, with these versions, had made it."""
    return keyed(measurement, hardware=host().key, runtime=runtime_key())
