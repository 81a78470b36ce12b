"""Arrays in a file that is mapped: the system takes the memory of mapped files back when others need it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

_ALIGNMENT = 64


def mapped_arrays(path: Path, arrays: Iterable[tuple[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Write arrays to a new file one after the other, and map them, read-only. The file has no name afterwards."""
    places: dict[str, tuple[int, np.dtype, tuple[int, ...]]] = {}
    with path.open("wb") as file:
        for name, array in arrays:
            file.seek(-file.tell() % _ALIGNMENT, 1)
            places[name] = file.tell(), array.dtype, array.shape
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    # Mapped once, as a mapping takes a descriptor and networks have thousands of weights.
    content = np.asarray(np.memmap(path, np.uint8, "r"))
    path.unlink()
    return {name: _part(content, *place) for name, place in places.items()}


def _part(content: np.ndarray, start: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    return content[start : start + size].view(dtype).reshape(shape)
