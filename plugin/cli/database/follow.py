"""``sartor db show --follow``: measurements as another process makes them."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from itertools import count
from pathlib import Path

from sartor.cli.output.messages import printable
from sartor.cli.output.terminal import milliseconds
from sartor.errors import UsageError
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status, typical_time
from sartor.tuning.store.store import Store

SECONDS = 1.0
"""Between two looks: what is measured meanwhile is disturbed as little as possible."""

# Others may store what they measured that much earlier: longer than they wait for each other. Clocks of machines differ
# by seconds, some by hours.
_LATE_SECONDS = 60.0
_SHOWN_OF_TASK = 16


def _print(line: str) -> None:
    # Who reads it through a pipe waits for each line.
    print(line, flush=True)


def follow(
    database: Path, say: Callable[[str], None] = _print, wait: Callable[[float], object] = time.sleep, looks: int = 0
) -> None:
    """Print a line for each measurement that is stored from now on.

    Args:
        database: an existing tuning database.
        say: prints a line.
        wait: waits for so many seconds.
        looks: number of times to look; 0 for no end.

    Raises:
        UsageError: if the database cannot be read, or what others write to it cannot be seen.
    """
    last = time.time()
    with Store.open_to_read(database) as store:
        if not store.persistent:
            raise UsageError(f"'{database}' cannot be followed, only copied: give yourself the right to write to it")
        shown = {_told(measurement) for measurement in store.measured_since(last - _LATE_SECONDS)}
        for _ in range(looks) if looks else count():
            now, measurements = time.time(), store.measured_since(last - _LATE_SECONDS)
            for measurement in measurements:
                if _told(measurement) not in shown:
                    say(line(measurement))
            shown = {_told(measurement) for measurement in measurements}
            # Measurements of a clock that is behind go on by that clock; one that is ahead hides none of the others.
            last = max([last, *(measurement.created for measurement in measurements if measurement.created <= now)])
            wait(SECONDS)


def _told(measurement: Measurement) -> tuple[MeasurementKey, float]:
    """What tells a line from others: a task may be measured again."""
    return measurement.key, measurement.created


def line(measurement: Measurement) -> str:
    """A measurement on one line: when, its task, how long it took and how much faster than stock, and the variant."""
    key = measurement.key
    when = datetime.fromtimestamp(measurement.created).strftime("%H:%M:%S")
    task = f"{printable(key.task)[:_SHOWN_OF_TASK]:<{_SHOWN_OF_TASK}}"
    return f"{when}  {task}  {_result(measurement):<32}  {printable(key.variant)}"


def _result(measurement: Measurement) -> str:
    if measurement.status is not Status.OK:
        return measurement.status.value
    shown = f"{milliseconds(measurement.time):>10} ms"
    if not measurement.baseline_samples:
        return shown
    return f"{shown}, {typical_time(measurement.baseline_samples) / measurement.time:.2f} times stock"
