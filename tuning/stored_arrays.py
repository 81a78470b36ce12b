"""Arrays that processes share by a file: a network's weights are too large to be sent through pipes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_ALIGNMENT = 64


@dataclass(frozen=True)
class _Place:
    offset: int
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class StoredArrays(Mapping[str, np.ndarray]):
    """Arrays by name in one file, read-only and mapped when they are asked for; pickled, it is the file's name.

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
                places[name] = _Place(file.tell(), array.dtype.str, array.shape)
                file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return StoredArrays(path, places)

    def __getitem__(self, name: str) -> np.ndarray:
        place = self._places[name]
        if 0 in place.shape:
            return np.empty(place.shape, place.dtype)
        return np.asarray(np.memmap(self.path, place.dtype, "r", place.offset, place.shape))

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
