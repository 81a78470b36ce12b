"""``sartor db show --follow``: measurements as another process makes them."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from itertools import count
from pathlib import Path

from sartor.cli.database.options import printable
from sartor.cli.output.terminal import milliseconds
from sartor.errors import UsageError
from sartor.tuning.records.measurement import Measurement, Status, typical_time
from sartor.tuning.store.store import Store

SECONDS = 1.0
"""Between two looks: what is measured meanwhile is disturbed as little as possible."""

_SHOWN_OF_TASK = 16


def follow(
    database: Path, say: Callable[[str], None] = print, wait: Callable[[float], object] = time.sleep, looks: int = 0
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
        for _ in range(looks) if looks else count():
            found = store.measured_since(last)
            for each in found:
                say(line(each))
            last = max((each.created for each in found), default=last)
            wait(SECONDS)


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
