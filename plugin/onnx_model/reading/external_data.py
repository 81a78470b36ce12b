"""Reads weights that are stored in files beside the model, and only in the model's folder.

The file names come from an untrusted model. They are checked for every tensor before a file is opened, and checked
again on the opened file.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto

from sartor.errors import UnsupportedModelError, UsageError
from sartor.onnx_model.graphs.held_data import hold, is_holding, release
from sartor.onnx_model.graphs.limits import MAX_EXTERNAL_BYTES, MAX_MODEL_BYTES
from sartor.onnx_model.graphs.tensor_data import stored_bytes, to_array
from sartor.onnx_model.graphs.walk import tensors

# Do not follow a link that replaced the file after the check, and do not wait for a named pipe.
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_MAX_DIGITS = 19


@dataclass(frozen=True)
class _Reference:
    """The range of a file that holds one tensor: ``length`` bytes of ``location`` from ``offset``."""

    tensor: TensorProto
    what: str
    location: str
    offset: int
    length: int


def inline_external_data(model: ModelProto, source: Path) -> tuple[Path, ...]:
    """Replace references to external data by the data, in place; inside ``holding`` the data is memory-mapped.

    Args:
        model: as it was read.
        source: where it was read.

    Returns:
        The files with the data, links resolved.

    Raises:
        UnsupportedModelError: a file lies outside the model's folder or is not a regular file with one name, or a
            range lies outside its file.
        UsageError: a file is missing or unreadable.
    """
    references = sorted(_references(model), key=lambda reference: (reference.location, reference.offset))
    total = sum(reference.length for reference in references)
    if total > MAX_MODEL_BYTES and total > (most := _most_bytes(references, source)):
        raise UnsupportedModelError(
            f"the model declares {total} bytes of external data, more than the {most} that are read; split the model"
        )
    files: dict[Path, None] = {}
    maps: dict[tuple[int, int], mmap.mmap] = {}
    for reference in references:
        path = _inside(source, reference)
        files[path] = None
        with _opened(path, reference) as file:
            data = _mapped(file, reference, maps) if is_holding() else _read(file, reference)
        del reference.tensor.external_data[:]
        reference.tensor.ClearField("data_location")
        hold(reference.tensor, data)
    for part in (*model.graph.node, *model.graph.sparse_initializer, *model.functions, *model.training_info):
        for tensor, _ in tensors(part):
            release(tensor)
    return tuple(files)


def _most_bytes(references: Iterable[_Reference], source: Path) -> int:
    """Bytes that are read: what files have is mapped, but ranges that overlap, or copies, would fill the memory."""
    if not is_holding():
        return MAX_MODEL_BYTES
    files = {_inside(source, reference) for reference in references}
    sizes = sum(path.stat().st_size for path in files if path.is_file())
    return max(MAX_MODEL_BYTES, min(sizes, MAX_EXTERNAL_BYTES))


def external_array(tensor: TensorProto, source: Path, most: int) -> np.ndarray[Any, Any] | None:
    """The values of a tensor that are stored in another file.

    Args:
        tensor: with a reference to the file.
        source: where its model was read.
        most: bytes that the values may have.

    Returns:
        The values; None if they have more bytes.

    Raises:
        UnsupportedModelError, UsageError: as ``inline_external_data``.
    """
    reference = _reference(tensor, f"weight '{tensor.name}'")
    if reference.length > most:
        return None
    with _opened(_inside(source, reference), reference) as file:
        data = _read(file, reference)
    return to_array(TensorProto(data_type=tensor.data_type, dims=tensor.dims, raw_data=data))


def is_external(tensor: TensorProto) -> bool:
    """Whether the tensor declares its data to be in another file."""
    return tensor.data_location == TensorProto.EXTERNAL or len(tensor.external_data) > 0


def _references(model: ModelProto) -> Iterator[_Reference]:
    for tensor, what in tensors(model):
        if is_external(tensor):
            yield _reference(tensor, what)


def _reference(tensor: TensorProto, what: str) -> _Reference:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if tensor.data_location != TensorProto.EXTERNAL or not entries.get("location"):
        raise UnsupportedModelError(f"{what} names external data but not the file it is in; export the model again")
    if tensor.data_type == TensorProto.STRING:
        raise UnsupportedModelError(f"{what} holds strings, which ONNX does not allow in external data")
    expected = stored_bytes(tensor, what)
    offset = _number(entries.get("offset", "0"), "offset", what)
    length = _number(entries.get("length", str(expected)), "length", what)
    if length != expected:
        raise UnsupportedModelError(
            f"{what} needs {expected} bytes for its shape, but its external data has length {length}; "
            "export the model again"
        )
    return _Reference(tensor, what, entries["location"], offset, length)


def _number(text: str, key: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise UnsupportedModelError(f"{what} has external data with the {key} {text[:40]!r}, which is not a byte count")
    return int(text)


def _inside(source: Path, reference: _Reference) -> Path:
    """The path of the file that ``reference`` names, with links resolved.

    It must lie below the folder of ``source``, or beside what ``source`` is a link to: in the cache of Hugging Face a
    model and its data are links to files in one folder elsewhere.
    """
    location = reference.location
    windows = PureWindowsPath(location)
    parts = {*PurePosixPath(location).parts, *windows.parts}
    absolute = PurePosixPath(location).is_absolute() or bool(windows.drive or windows.root)
    if absolute or ".." in parts or "\0" in location:
        raise _escapes(reference, "only files inside the model's folder are read")
    try:
        root, beside = source.parent.resolve(strict=True), source.resolve(strict=True).parent
        path = (source.parent / location).resolve(strict=True)
    except (OSError, RuntimeError):
        raise UsageError(
            f"{reference.what} is stored in {location!r}, which is missing from {source.parent}; "
            "put the file beside the model"
        ) from None
    if not path.is_relative_to(root) and path.parent != beside:
        advice = f"copy '{path}' to the place of the link"
        raise _escapes(reference, "a link leads out of the model's folder", advice)
    return path


def _escapes(
    reference: _Reference, reason: str, advice: str = "put the data beside the model"
) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{reference.what} names the external data file {reference.location!r}, but {reason}; {advice}"
    )


@contextmanager
def _opened(path: Path, reference: _Reference) -> Iterator[int]:
    try:
        file = os.open(path, _OPEN_FLAGS)
    except OSError as error:
        raise _unreadable(reference, error) from None
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise _escapes(reference, "that is not a plain file")
        if status.st_nlink != 1:
            raise _escapes(reference, "that file has further hard links, which may lie outside the model's folder")
        if reference.offset + reference.length > status.st_size:
            raise UnsupportedModelError(
                f"{reference.what} lies at bytes {reference.offset} to {reference.offset + reference.length} of "
                f"{reference.location!r}, which has only {status.st_size}; the file is truncated or not this model's"
            )
        yield file
    finally:
        os.close(file)


def _read(file: int, reference: _Reference) -> bytes:
    with os.fdopen(os.dup(file), "rb") as stream:
        stream.seek(reference.offset)
        data = stream.read(reference.length)
    if len(data) != reference.length:
        raise UnsupportedModelError(f"{reference.what}: {reference.location!r} became shorter while it was read")
    return data


def _mapped(file: int, reference: _Reference, maps: dict[tuple[int, int], mmap.mmap]) -> bytes | memoryview:
    """A part of a file, which is mapped once: a mapping takes a descriptor, and models have thousands of tensors."""
    if not reference.length:
        return b""
    status, end = os.fstat(file), reference.offset + reference.length
    key = (status.st_dev, status.st_ino)
    if key not in maps or len(maps[key]) < end:
        try:
            maps[key] = mmap.mmap(file, 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise _unreadable(reference, error) from None
    return memoryview(maps[key])[reference.offset : end]


def _unreadable(reference: _Reference, error: OSError) -> UsageError:
    return UsageError(f"{reference.what} is stored in {reference.location!r}, which cannot be read: {error.strerror}")
