"""Reads arrays in .npy and .npz files piece by piece, without pickles."""

from __future__ import annotations

import lzma
import math
import os
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.lib.format import MAGIC_PREFIX

from sartor.errors import UsageError
from sartor.runtime.driver.signature import Array
from sartor.runtime.files.regular_files import check_regular

ARRAY_SUFFIX = ".npy"
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_SHOWN_SIZES = 8
# What zipfile, its decompressors and numpy raise on damaged files. RuntimeError is zipfile's on encrypted ones, and
# Python's on a header that is nested too deep, for which it may also want memory.
_UNREADABLE = (
    ValueError,
    EOFError,
    MemoryError,
    OverflowError,
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
        with _reading(self.path), _opened(self.path, self.member) as (stream, _):
            _header(stream)
            stream.seek(start * size, 1)
            for _ in range(start, stop):
                yield np.frombuffer(_exactly(stream, size), self.dtype).reshape(shape, order=order)

    def is_raw(self, dtype: np.dtype[Any]) -> bool:
        """Whether it holds elements of a type of which the .npy format keeps nothing but the size, as of bfloat16."""
        return dtype.kind == "V" and self.dtype.kind == "V" and self.dtype.itemsize == dtype.itemsize

    def whole(self) -> Array:
        """All of it, in memory that may be written to.

        Raises:
            UsageError: as ``pieces``.
        """
        (array,) = self.pieces(self.shape, 0, 1)
        return array.copy(order="K")


def array_names(path: Path) -> list[str]:
    """Names of the arrays in a .npz file.

    Raises:
        UsageError: if it cannot be read, or is no such file.
    """
    with _reading(path), zipfile.ZipFile(path) as archive:
        return [member.removesuffix(ARRAY_SUFFIX) for member in archive.namelist()]


def is_archive(path: Path) -> bool:
    """Whether a file is an archive, as .npz files are.

    Raises:
        UsageError: if it cannot be read.
    """
    with _reading(path):
        return zipfile.is_zipfile(path)


def is_array(path: Path) -> bool:
    """Whether a file begins like a .npy file.

    Raises:
        UsageError: if it cannot be read.
    """
    with _reading(path), path.open("rb") as file:
        return file.read(len(MAGIC_PREFIX)) == MAGIC_PREFIX


def stored_array(path: Path, name: str | None = None) -> StoredArray:
    """The header of a .npy file, or of the array of this name in a .npz file.

    Raises:
        UsageError: if it cannot be read, is no plain array, or needs more bytes than there are.
    """
    with _reading(path):
        member = None if name is None else _member(path, name)
        with _opened(path, member) as (stream, length):
            shape, fortran, dtype = _header(stream)
            rest = length - stream.tell()
        if dtype.hasobject:
            raise UsageError(f"'{path}' holds Python objects, save plain arrays of numbers instead")
        if any(size < 0 for size in shape):
            raise ValueError(f"an array cannot have the shape {list(shape[:_SHOWN_SIZES])}")
        if math.prod(shape) * dtype.itemsize > rest:
            raise EOFError("it ends early")
    return StoredArray(path, member, shape, dtype, fortran)


def _member(path: Path, name: str) -> str:
    with zipfile.ZipFile(path) as archive:
        return name + ARRAY_SUFFIX if name + ARRAY_SUFFIX in archive.NameToInfo else name


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    if version not in _HEADERS:
        raise ValueError(f"version {version} of the format is not known")
    shape, fortran, dtype = _HEADERS[version](stream)
    # A header may have True for 1.
    return tuple(map(int, shape)), bool(fortran), dtype


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise EOFError("it ends early")
    return data


@contextmanager
def _opened(path: Path, member: str | None) -> Iterator[tuple[IO[bytes], int]]:
    """The content of an array's file, and how many bytes that is."""
    if member is None:
        with path.open("rb") as stream:
            yield stream, os.fstat(stream.fileno()).st_size
    else:
        with zipfile.ZipFile(path) as archive, archive.open(member) as entry:
            yield entry, archive.getinfo(member).file_size


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn exceptions about a file into a UsageError that names it; it must be regular, as it is sought in."""
    try:
        check_regular(path)
        yield
    except OSError as error:
        raise UsageError(f"'{path}' cannot be read: {error.strerror or error}") from None
    except KeyError as error:
        raise UsageError(f"'{path}' cannot be read: {error.args[0]}") from None
    except _UNREADABLE as error:
        # numpy's further lines advise to trust the file.
        reason = str(error).partition("\n")[0]
        raise UsageError(f"'{path}' does not hold plain arrays: {reason}") from None
