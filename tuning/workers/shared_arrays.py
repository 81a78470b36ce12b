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
    """Where an array lies in the file: it has ``shape`` there, and ``order`` transposes it to the array."""

    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class StoredArrays(Mapping[str, np.ndarray]):
    """Arrays by name in one file; access maps them read-only. Pickling it stores the file's path, not the arrays.

    Arrays keep their memory order, so that transposed views need not be copied.

    Attributes:
        path: the file, which must exist when arrays are accessed.
    """

    path: Path
    _places: Mapping[str, _Place]

    @staticmethod
    def write(path: Path, arrays: Mapping[str, np.ndarray]) -> StoredArrays:
        """Write arrays to a new file."""
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
    """A contiguous array, and the axes that transpose it to ``array``: reordering large arrays takes long."""
    axes = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    order = tuple(axes.index(axis) for axis in range(array.ndim))
    return np.ascontiguousarray(array.transpose(axes)).reshape([array.shape[axis] for axis in axes]), order
