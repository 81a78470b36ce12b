"""Arrays in a file that is mapped: the system takes the memory of mapped files back when others need it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

_ALIGNMENT = 64
_Place = tuple[int, np.dtype, tuple[int, ...]]


def mapped_arrays(path: Path, arrays: Iterable[tuple[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Write arrays to a new file one after the other, and map them, read-only. The file has no name afterwards, nor is
    it left if that fails: it may have gigabytes.

    Raises:
        OSError: if it cannot be written; where the disk is full, those who run the job say where room is needed.
    """
    try:
        places = _written(path, arrays)
        # Mapped once, as a mapping takes a descriptor and networks have thousands of weights.
        content = np.asarray(np.memmap(path, np.uint8, "r"))
    finally:
        path.unlink(missing_ok=True)
    return {name: _part(content, *place) for name, place in places.items()}


def _written(path: Path, arrays: Iterable[tuple[str, np.ndarray]]) -> dict[str, _Place]:
    places: dict[str, _Place] = {}
    with path.open("wb") as file:
        for name, array in arrays:
            file.seek(-file.tell() % _ALIGNMENT, 1)
            places[name] = file.tell(), array.dtype, array.shape
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return places


def _part(content: np.ndarray, start: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    return content[start : start + size].view(dtype).reshape(shape)
