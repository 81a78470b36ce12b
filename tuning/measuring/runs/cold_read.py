"""Bandwidth of the first read of a file, which mapped weights cost the first inference.

Modules are mapped and nothing is transformed at load, so the first inference differs from later ones by page faults.
It touches nearly all pages of packed weights, roughly in the file's order, and reads them from the disk unless they are
in the page cache.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

import numpy as np

from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status, runtime_key
from sartor.tuning.store.store import Store
from sartor.workspace import partial_file

_BYTES = 64 << 20
_ROUNDS = 5
_KEY = "first-reading"


def cold_read_bandwidth(store: Store, folder: Path) -> float | None:
    """Bytes per second, from the store, or measured with a file in ``folder`` and stored.

    None if the system cannot drop a file from the page cache, so that nothing can be measured.
    """
    key = MeasurementKey(_KEY, f"mapped {_BYTES} B", "", store.hardware, 1, runtime_key(), "file")
    known = store.get_many([key]).get(key)
    if known is None:
        samples = _samples(folder)
        if not samples:
            return None
        known = Measurement(key, Status.OK, samples)
        store.put(known)
    return _BYTES / known.time


def drop_page_cache(path: Path) -> bool:
    """Drop a file from the page cache, so that it is read from the disk again; False if the system cannot."""
    if not hasattr(os, "posix_fadvise"):
        return False
    handle = os.open(path, os.O_RDONLY)
    try:
        # Only pages that were written to the disk can be dropped.
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)
    return True


def _samples(folder: Path) -> tuple[float, ...]:
    """Seconds of touching every page of a file after it was dropped from the page cache."""
    with partial_file(folder) as path:
        block = os.urandom(1 << 20)
        with path.open("wb") as file:
            for _ in range(_BYTES // len(block)):
                file.write(block)
        return tuple(_touch(path) for _ in range(_ROUNDS) if drop_page_cache(path))


def _touch(path: Path) -> float:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        pages = np.frombuffer(mapped, np.uint8)[:: mmap.PAGESIZE]
        begin = time.perf_counter()
        pages.max()
        seconds = time.perf_counter() - begin
        # Views of the mapping must be deleted before it is closed.
        del pages
        return seconds
