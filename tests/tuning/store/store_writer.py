"""Processes for the store's tests to kill; they print what is committed.

python store_writer.py write PATH FIRST     measurements FIRST, FIRST + 1, ... until killed
python store_writer.py create FOLDER        one new store after the other until killed
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status
from sartor.tuning.store.store import Store


def measurement(index: int) -> Measurement:
    """Measurement number ``index``: large enough that several pages and checkpoints are written soon."""
    key = MeasurementKey(f"task {index}", "cpu:f32/default", "source", "machine", 1, "runtime", "cpu/host")
    samples = tuple(1e-3 * (index + i + 1) for i in range(100))
    return Measurement(key, Status.OK, samples, error=0.0, created=float(index))


def write(path: Path, first: int) -> None:
    with Store.open(path) as store:
        for index in itertools.count(first):
            store.put(measurement(index))
            print(index, flush=True)


def create(folder: Path) -> None:
    for index in itertools.count():
        with Store.open(folder / f"{index}.db") as store:
            store.put(measurement(index))
        print(index, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        create(Path(sys.argv[2]))
