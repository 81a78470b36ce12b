"""Reads an untrusted ONNX file into a self-contained, checked ``ModelProto``."""

from __future__ import annotations

import mmap
from pathlib import Path

from google.protobuf.message import DecodeError
from onnx import ModelProto

from sartor.errors import UnsupportedModelError, UsageError
from sartor.onnx_model.graphs.held_data import HELD_BYTES, hold, holding, is_holding
from sartor.onnx_model.graphs.limits import MAX_MODEL_BYTES, MAX_NESTING
from sartor.onnx_model.graphs.wire import nesting, taken_apart, varint
from sartor.onnx_model.reading.check_names import check_names
from sartor.onnx_model.reading.external_data import inline_external_data
from sartor.onnx_model.reading.noise_inputs import feed_noise
from sartor.onnx_model.reading.validate import check_model, check_structure

_LFS_POINTER = b"version https://git-lfs"
_LENGTH_DELIMITED = 2


def load_model(path: Path) -> ModelProto:
    """Read an ONNX file and its external data.

    The result contains all weights. Only inside ``holding`` large weights stay in their files, which are mapped. Inputs
    take the place of random operators (``feed_noise``).

    Raises:
        UsageError: the file, or an external data file, is missing or unreadable.
        UnsupportedModelError: the file is not ONNX, is damaged or truncated, exceeds the size limits, names external
            data outside the model's folder, does not define each value once, or uses an unknown operator or opset.
    """
    return read_model(path)[0]


def read_model(path: Path) -> tuple[ModelProto, tuple[Path, ...]]:
    """As ``load_model``, with the files of its external data, links resolved.

    Raises:
        SartorError: as ``load_model``.
    """
    model, ranges = _parse(_read(path), path)
    check_structure(model)
    check_names(model)
    files = inline_external_data(model, path)
    for index, data in ranges.items():
        hold(model.graph.initializer[index], data)
    check_model(model)
    feed_noise(model)
    return model, files


def check_files(path: Path) -> tuple[Path, ...]:
    """Make sure that a model names no data outside its folder, before other programs read it.

    Returns:
        The files of its external data, links resolved.

    Raises:
        UsageError, UnsupportedModelError: as ``load_model``, operators and weights aside.
    """
    with holding():
        model, _ = _parse(_read(path), path)
        check_structure(model)
        return inline_external_data(model, path)


def _read(path: Path) -> bytes | mmap.mmap:
    _check_text(path)
    try:
        if not path.is_file():
            raise UsageError(f"{path} is not a file; name an .onnx file")
        size = path.stat().st_size
        if size > MAX_MODEL_BYTES:
            raise UnsupportedModelError(
                f"{path} has {size} bytes, more than the {MAX_MODEL_BYTES} an ONNX file may have"
            )
        with path.open("rb") as file:
            if is_holding() and size:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            return file.read(size)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def _check_text(path: Path) -> None:
    """Make sure that a path is text, as ONNX Runtime opens no others.

    Raises:
        UsageError: if it is not.
    """
    try:
        str(path.absolute()).encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError(f"{path} has a name, or lies in a folder, that is not UTF-8; rename it") from None


def _parse(content: bytes | mmap.mmap, path: Path) -> tuple[ModelProto, dict[int, memoryview]]:
    """The parsed model, and the data of initialisers that it lacks, by the initialiser's index."""
    data = memoryview(content)
    if not data:
        raise UnsupportedModelError(f"{path} is empty; an ONNX model was expected")
    if data[: len(_LFS_POINTER)] == _LFS_POINTER:
        raise UnsupportedModelError(f"{path} is a Git LFS pointer, not the model; fetch it with `git lfs pull`")
    light, ranges = (is_holding() and taken_apart(data, HELD_BYTES)) or (content, {})
    try:
        model: ModelProto = ModelProto.FromString(bytes(light))
    except DecodeError:
        needed = _declared_length(data)
        if needed is not None:
            raise UnsupportedModelError(
                f"{path} is truncated: it has {len(data)} bytes and needs at least {needed}; copy it again"
            ) from None
        if nesting(data) > MAX_NESTING:
            raise UnsupportedModelError(
                f"{path} nests If, Loop or Scan more than {MAX_NESTING} deep, which protobuf does not read; "
                "flatten the branches before exporting"
            ) from None
        raise UnsupportedModelError(f"{path} is not an ONNX model, or is damaged") from None
    if not model.HasField("graph") or not model.opset_import:
        raise UnsupportedModelError(
            f"{path} is not an ONNX model: it has no graph or declares no opset; export the model again"
        )
    return model, ranges


def _declared_length(data: memoryview) -> int | None:
    """Size in bytes of the whole message if ``data`` is the beginning of one, or None."""
    position, fields = 0, ModelProto.DESCRIPTOR.fields_by_number
    while position < len(data):
        tag, position = varint(data, position)
        if tag >> 3 not in fields:
            return None
        if tag & 7 == 0:
            _, position = varint(data, position)
        elif tag & 7 == _LENGTH_DELIMITED:
            length, position = varint(data, position)
            position += length
        else:
            return None
    return position if position > len(data) else None
