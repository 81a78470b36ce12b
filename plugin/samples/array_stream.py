"""Reads arrays in .npy and .npz files piece by piece, without pickles."""

from __future__ import annotations

import lzma
import math
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from sartor.errors import UsageError
from sartor.runtime.driver.signature import Array

_SUFFIX = ".npy"
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
# Exceptions of zipfile, its decompressors and numpy for damaged files, and of zipfile for encrypted ones
# (RuntimeError).
_UNREADABLE = (
    ValueError,
    EOFError,
    RuntimeError,
    SyntaxError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)


@dataclass(frozen=True)
class StoredArray:
    """An array in a file; only its header has been read.

    Attributes:
        path: the .npy or .npz file.
        member: name inside the .npz file, None for a .npy file.
        shape: of the whole array.
        dtype: as stored.
        fortran: whether the array is stored in Fortran order, with the first index fastest.
    """

    path: Path
    member: str | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool

    def pieces(self, shape: tuple[int, ...], start: int, stop: int) -> Iterator[Array]:
        """Yield pieces ``start`` to ``stop`` of the array, cut along its first axis to ``shape``; one is in memory.

        Raises:
            UsageError: if the file is damaged or truncated.
        """
        size = math.prod(shape) * self.dtype.itemsize
        order: Literal["C", "F"] = "F" if self.fortran else "C"
        with _opened(self.path, self.member) as stream:
            _header(stream)
            stream.seek(start * size, 1)
            for _ in range(start, stop):
                yield np.frombuffer(_exactly(stream, size), self.dtype).reshape(shape, order=order)


def stored_arrays(path: Path) -> dict[str, StoredArray]:
    """Read the headers of all arrays in a .npz file, by name; the array of a .npy file has the empty name.

    Raises:
        UsageError: if the file cannot be read, or does not hold plain arrays.
    """
    if path.suffix == _SUFFIX:
        return {"": _described(path, None)}
    with _reading(path), zipfile.ZipFile(path) as archive:
        members = archive.namelist()
    return {member.removesuffix(_SUFFIX): _described(path, member) for member in members}


def _described(path: Path, member: str | None) -> StoredArray:
    with _opened(path, member) as stream:
        shape, fortran, dtype = _header(stream)
    if dtype.hasobject:
        raise UsageError(f"'{path}' holds Python objects, save plain arrays of numbers instead")
    return StoredArray(path, member, shape, dtype, fortran)


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    if version not in _HEADERS:
        raise ValueError(f"version {version} of the format is not known")
    return _HEADERS[version](stream)


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise EOFError("it ends early")
    return data


@contextmanager
def _opened(path: Path, member: str | None) -> Iterator[IO[bytes]]:
    with _reading(path):
        if member is None:
            with path.open("rb") as stream:
                yield stream
        else:
            with zipfile.ZipFile(path) as archive, archive.open(member) as entry:
                yield entry


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn exceptions about a file into a UsageError that names it."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"'{path}' cannot be read: {error.strerror or error}") from None
    except KeyError as error:
        raise UsageError(f"'{path}' cannot be read: {error.args[0]}") from None
    except _UNREADABLE as error:
        raise UsageError(f"'{path}' does not hold plain arrays: {error}") from None
