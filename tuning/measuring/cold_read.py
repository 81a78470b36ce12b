"""How fast a file is read for the first time: what weights that are mapped into memory cost the first inference.

Nothing is transformed at load and the module is mapped, so that the first inference differs from the next ones by the
pages that it touches first: of packed weights nearly all, in about the file's order. They come from the disk, unless
the system still has them.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

import numpy as np

from sartor.tuning.records.hardware import host
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status, runtime_key
from sartor.tuning.store.store import Store
from sartor.workspace import partial_file

_BYTES = 64 << 20
_ROUNDS = 5
_KEY = "first-reading"


def first_reading(store: Store, folder: Path) -> float | None:
    """Bytes per second, by what the store knows of this machine, or else by a file in ``folder``.

    None where a file cannot be dropped from memory, so that nothing can be measured.
    """
    key = MeasurementKey(_KEY, f"mapped {_BYTES} B", "", host().key, 1, runtime_key(), "file")
    known = store.get_many([key]).get(key)
    if known is None:
        samples = _samples(folder)
        if not samples:
            return None
        known = Measurement(key, Status.OK, samples)
        store.put(known)
    return _BYTES / known.time


def forget(path: Path) -> bool:
    """Drop a file from the system's memory, so that it is read from the disk again; whether that can be asked for."""
    if not hasattr(os, "posix_fadvise"):
        return False
    handle = os.open(path, os.O_RDONLY)
    try:
        # Only what is on the disk already can be dropped.
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)
    return True


def _samples(folder: Path) -> tuple[float, ...]:
    """Seconds of touching every page of a file that was dropped from memory."""
    with partial_file(folder) as path:
        block = os.urandom(1 << 20)
        with path.open("wb") as file:
            for _ in range(_BYTES // len(block)):
                file.write(block)
        return tuple(_touch(path) for _ in range(_ROUNDS) if forget(path))


def _touch(path: Path) -> float:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        pages = np.frombuffer(mapped, np.uint8)[:: mmap.PAGESIZE]
        begin = time.perf_counter()
        pages.max()
        seconds = time.perf_counter() - begin
        # What refers to it must be gone before the mapping is.
        del pages
        return seconds
