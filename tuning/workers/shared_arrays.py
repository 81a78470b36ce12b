"""Arrays that processes share by a file: a network's weights are too large to be sent through pipes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

_ALIGNMENT = 64


@dataclass(frozen=True)
class _Place:
    """Where an array lies in its file: it has ``shape`` there, and ``order`` transposes it to the array."""

    path: Path
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: tuple[int, ...]


@dataclass(frozen=True)
class StoredArrays(Mapping[str, np.ndarray]):
    """Arrays by name in files; access maps them read-only. Pickling it stores the files' paths, not the arrays.

    Arrays keep their memory order, so that transposed views need not be copied. Those at the same places are equal.

    Attributes:
        path: the first file; all must exist when arrays are accessed.
    """

    path: Path
    _places: Mapping[str, _Place] = field(hash=False)

    @staticmethod
    def write(path: Path, arrays: Mapping[str, np.ndarray] | Iterable[tuple[str, np.ndarray]]) -> StoredArrays:
        """Write arrays, or pairs of names and arrays one after the other, to a new file."""
        places: dict[str, _Place] = {}
        # What has the same file by another name, or has mapped it, keeps what was in it.
        path.unlink(missing_ok=True)
        with path.open("wb") as file:
            for name, array in arrays.items() if isinstance(arrays, Mapping) else arrays:
                file.seek(-file.tell() % _ALIGNMENT, 1)
                stored, order = _in_memory_order(array)
                places[name] = _Place(path, file.tell(), array.dtype, stored.shape, order)
                file.write(stored.reshape(-1).view(np.uint8).data)
        return StoredArrays(path, places)

    @property
    def paths(self) -> frozenset[Path]:
        """The files in which arrays are."""
        return frozenset(place.path for place in self._places.values())

    @property
    def listed(self) -> str:
        """Where each array lies in its file, and how, as a text."""
        places = sorted(self._places.items())
        return str([(name, place.offset, str(place.dtype), place.shape, place.order) for name, place in places])

    def at(self, path: Path) -> StoredArrays:
        """The same arrays, which are in one file, in a copy of it."""
        return StoredArrays(path, {name: replace(place, path=path) for name, place in self._places.items()})

    def only(self, names: Iterable[str]) -> StoredArrays:
        """Some of the arrays, in the same files."""
        return StoredArrays(self.path, {name: self._places[name] for name in names})

    def joined(self, others: StoredArrays) -> StoredArrays:
        """These arrays and others, which have other names."""
        return StoredArrays(self.path, {**self._places, **others._places})

    def renamed(self, names: Mapping[str, tuple[str, bool]]) -> StoredArrays:
        """Some of the arrays by new names, for each of which the old one is given, and whether to transpose it."""
        places = {new: self._places[old] for new, (old, _) in names.items()}
        transposed = {new: places[new] for new, (_, transposes) in names.items() if transposes}
        places |= {new: replace(place, order=place.order[::-1]) for new, place in transposed.items()}
        return StoredArrays(self.path, places)

    def __getitem__(self, name: str) -> np.ndarray:
        place = self._places[name]
        if 0 in place.shape:
            return np.empty(place.shape, place.dtype).transpose(place.order)
        return np.asarray(np.memmap(place.path, place.dtype, "r", place.offset, place.shape)).transpose(place.order)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _in_memory_order(array: np.ndarray) -> tuple[np.ndarray, tuple[int, ...]]:
    """A contiguous array, and the axes that transpose it to ``array``: reordering large arrays takes long."""
    axes = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    order = tuple(axes.index(axis) for axis in range(array.ndim))
    return np.ascontiguousarray(array.transpose(axes)).reshape([array.shape[axis] for axis in axes]), order
