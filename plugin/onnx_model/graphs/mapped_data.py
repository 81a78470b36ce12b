"""Parses models of large files without their weights, which stay in the file: it is mapped until the process ends.

A tensor then names its place as ONNX's external data does, relative to the root of the file system (``ROOT``). ONNX
Runtime maps the same file, so a model can be edited, serialised and run while nobody has a copy of its weights. Unlike
data that is held (``held_data``), this lasts beyond a context, and is of one file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, StringStringEntryProto, TensorProto, helper

from sartor.errors import UsageError
from sartor.onnx_model.graphs.held_data import HELD_BYTES, PLAIN
from sartor.onnx_model.graphs.wire import taken_apart

ROOT = Path(os.path.abspath(os.sep))
"""What locations of mapped data are relative to: ONNX Runtime takes no absolute ones."""
LARGE_BYTES = 64 << 20
"""Smaller files are parsed whole, which is as fast and takes little memory."""

# What names the state of a file that a tensor is of: a field of ONNX that ONNX Runtime takes and does not read.
_STATE = "checksum"

_files: dict[tuple[str, str], np.ndarray[Any, Any]] = {}
"""Mapped files by location and state: a file may be replaced by another one under its name."""


def mapped_model(path: Path) -> ModelProto:
    """Parse a model; the weights of a large file stay in it.

    Raises:
        DecodeError: if the file is no model.
        OSError: if it cannot be read.
    """
    model = _mapped(path) if is_large(path) else None
    return model or ModelProto.FromString(path.read_bytes())


def is_large(path: Path) -> bool:
    """Whether the weights of a file are better not copied."""
    return path.stat().st_size >= LARGE_BYTES


def _mapped(path: Path) -> ModelProto | None:
    """None if the file's encoding is unusual, which protobuf has to judge."""
    place = path.resolve()
    with place.open("rb") as file:
        state, content = _state(os.fstat(file.fileno())), np.memmap(file, np.uint8, "r")
    parts = taken_apart(content.data, HELD_BYTES)
    if parts is None:
        return None
    light, ranges = parts
    model: ModelProto = ModelProto.FromString(light)
    location, start = place.relative_to(ROOT).as_posix(), content.ctypes.data
    _files[location, state] = np.asarray(content)
    for index, data in ranges.items():
        tensor = model.graph.initializer[index]
        if tensor.data_type in PLAIN:
            offset = np.frombuffer(data, np.uint8).ctypes.data - start
            _refer(tensor, {"location": location, "offset": offset, "length": len(data), _STATE: state})
        else:
            tensor.raw_data = bytes(data)
    return model


def _state(status: os.stat_result) -> str:
    """Differs between a file and one that takes its place, and once it is written to."""
    return f"{status.st_dev}.{status.st_ino}.{status.st_size}.{status.st_mtime_ns}"


def _refer(tensor: TensorProto, entries: Mapping[str, str | int]) -> None:
    tensor.external_data.extend(StringStringEntryProto(key=key, value=str(value)) for key, value in entries.items())
    tensor.data_location = TensorProto.EXTERNAL


def check_unchanged(content: bytes) -> None:
    """Make sure that the mapped files of a serialised model are those that it was parsed from.

    Raises:
        UsageError: if one was replaced, written to or removed, so that whoever loads the model reads something else.
    """
    for location, state in _files:
        if location.encode() not in content or state.encode() not in content:
            continue
        path = ROOT / location
        try:
            now = _state(path.stat())
        except OSError:
            now = ""
        if now != state:
            raise UsageError(
                f"the model's file '{path}' was {'changed' if now else 'removed'} while it was used; leave it as it is "
                "until the command ends, and run it again"
            )


def mapped_array(tensor: TensorProto) -> np.ndarray[Any, Any] | None:
    """The values of a tensor in a file that is mapped, which must not be written to; None if it has its own data, or is
    in another file."""
    if tensor.data_location != TensorProto.EXTERNAL:
        return None
    entries = {entry.key: entry.value for entry in tensor.external_data}
    content = _files.get((entries.get("location", ""), entries.get(_STATE, "")))
    if content is None:
        return None
    begin, dtype = int(entries["offset"]), helper.tensor_dtype_to_np_dtype(tensor.data_type)
    array: np.ndarray[Any, Any] = content[begin : begin + int(entries["length"])].view(dtype)
    return array.reshape(tuple(tensor.dims))


def mapped_bytes(content: bytes) -> int:
    """Bytes of the weights of a serialised model that are in mapped files."""
    if not any(location.encode() in content for location, _ in _files):
        return 0
    arrays = (mapped_array(tensor) for tensor in ModelProto.FromString(content).graph.initializer)
    return sum(array.nbytes for array in arrays if array is not None)
