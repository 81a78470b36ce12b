"""Bandwidth of the first read of a file, as a session reads it: mapped in huge pages, ahead of what is executed.

Modules are mapped and nothing is transformed at load, so the first inference differs from later ones by what it reads:
nearly all packed weights, in the file's order, from the disk unless they are in the page cache.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

import numpy as np

from sartor.runtime.mapping.mapped_file import MappedFile
from sartor.runtime.mapping.pages import CAN_MOVE
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status, runtime_key
from sartor.tuning.store.store import Store
from sartor.workspace import partial_file

_BYTES = 64 << 20
_ROUNDS = 5
_KEY = "first-reading"


def cold_read_bandwidth(store: Store, folder: Path) -> float | None:
    """Bytes per second of the disk that has ``folder``, from the store, or measured with a file there and stored.

    None if the system cannot drop a file from the page cache, so that nothing can be measured.
    """
    # Another disk, or one in memory, reads at another pace.
    device = folder.stat().st_dev
    disk = f"file on device {os.major(device)}:{os.minor(device)}"
    key = MeasurementKey(_KEY, f"read ahead {_BYTES} B", "", store.hardware, 1, runtime_key(), disk)
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
    """Seconds of reading a file after it was dropped from the page cache."""
    with partial_file(folder) as path:
        block = os.urandom(1 << 20)
        with path.open("wb") as file:
            for _ in range(_BYTES // len(block)):
                file.write(block)
        return tuple(_read(path) for _ in range(_ROUNDS) if drop_page_cache(path))


def _read(path: Path) -> float:
    """Seconds until all of a file is in memory and mapped; where sessions do not read ahead, until it was touched."""
    with path.open("rb") as file:
        begin = time.perf_counter()
        if CAN_MOVE:
            mapped = MappedFile(path, file.fileno(), lambda content, label: None)
            mapped.reading.wait()
            _touch(mapped.content)
        else:
            with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
                _touch(content)
        return time.perf_counter() - begin


def _touch(content: memoryview | mmap.mmap) -> None:
    """Read a byte of each page. No view is left, so that the memory may be unmapped."""
    np.frombuffer(content, np.uint8)[:: mmap.PAGESIZE].max()
