"""Arrays that processes share by a file: a network's weights are too large to be sent through pipes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_ALIGNMENT = 64


@dataclass(frozen=True)
class _Place:
    """An array's bytes; they are of ``shape``, and the array is that transposed by ``order``."""

    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class StoredArrays(Mapping[str, np.ndarray]):
    """Arrays by name in one file, read-only and mapped when they are asked for; pickled, it is the file's name.

    They come back in the memory order that they had, so transposed views stay views.

    Attributes:
        path: the file; it must be there as long as arrays are asked for.
    """

    path: Path
    _places: Mapping[str, _Place]

    @staticmethod
    def write(path: Path, arrays: Mapping[str, np.ndarray]) -> StoredArrays:
        """Store arrays in a new file."""
        places: dict[str, _Place] = {}
        with path.open("wb") as file:
            for name, array in arrays.items():
                file.seek(-file.tell() % _ALIGNMENT, 1)
                stored, order = _in_memory_order(array)
                places[name] = _Place(file.tell(), array.dtype, stored.shape, order)
                file.write(stored.reshape(-1).view(np.uint8).data)
        return StoredArrays(path, places)

    def only(self, names: Iterable[str]) -> StoredArrays:
        """Some of the arrays, in the same file."""
        return StoredArrays(self.path, {name: self._places[name] for name in names})

    def __getitem__(self, name: str) -> np.ndarray:
        place = self._places[name]
        if 0 in place.shape:
            return np.empty(place.shape, place.dtype).transpose(place.order)
        return np.asarray(np.memmap(self.path, place.dtype, "r", place.offset, place.shape)).transpose(place.order)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _in_memory_order(array: np.ndarray) -> tuple[np.ndarray, tuple[int, ...]]:
    """A contiguous array, and how to transpose it to get ``array``: bringing large ones into order takes long."""
    axes = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    order = tuple(axes.index(axis) for axis in range(array.ndim))
    return np.ascontiguousarray(array.transpose(axes)).reshape([array.shape[axis] for axis in axes]), order
