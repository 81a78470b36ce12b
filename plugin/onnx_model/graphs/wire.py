"""Removes the data of weights from a serialised model and inserts it again, without copying it.

Protobuf copies a tensor's bytes when it parses, copies or serialises a model, and at each access. In its encoding
(https://protobuf.dev/programming-guides/encoding) they are a range of the file, which can be mapped to memory instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}
_VARINT_BITS = 7
_MAX_VARINT_BYTES = 10

_GRAPH: int = ModelProto.GRAPH_FIELD_NUMBER
_INITIALIZER: int = GraphProto.INITIALIZER_FIELD_NUMBER
_RAW_DATA: int = TensorProto.RAW_DATA_FIELD_NUMBER
_PLACE = (TensorProto.EXTERNAL_DATA_FIELD_NUMBER, TensorProto.DATA_LOCATION_FIELD_NUMBER)

# Where bodies are: what the fields of a message that lead to one hold, by number.
_Paths = dict[int, "_Paths"]
_GRAPHS: _Paths = {}
_ATTRIBUTES: _Paths = {AttributeProto.G_FIELD_NUMBER: _GRAPHS, AttributeProto.GRAPHS_FIELD_NUMBER: _GRAPHS}
_NODES: _Paths = {NodeProto.ATTRIBUTE_FIELD_NUMBER: _ATTRIBUTES}
_GRAPHS[GraphProto.NODE_FIELD_NUMBER] = _NODES
_MODEL: _Paths = {_GRAPH: _GRAPHS}


class _IrregularError(Exception):
    """The bytes are not the usual encoding of a model, though protobuf may be able to parse them."""


@dataclass(frozen=True)
class _Field:
    """One field of a message: bytes ``start`` to ``end``, with the payload from ``value``."""

    number: int
    wire_type: int
    start: int
    value: int
    end: int


def varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Decode the variable-length integer at ``position``; returns its value and the position after it.

    If ``data`` ends within the integer, the returned position is beyond the end of ``data``.
    """
    value = 0
    for index, byte in enumerate(data[position : position + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (_VARINT_BITS * index)
        if byte < 0x80:
            return value, position + index + 1
    return value, len(data) + 1


def taken_apart(data: memoryview, smallest: int) -> tuple[bytes, dict[int, memoryview]] | None:
    """Split a serialised model into the model without the data of its graph's large initialisers, and that data.

    Args:
        data: the file's content.
        smallest: size in bytes from which data is removed.

    Returns:
        The model without the data, and the data by the initialiser's index. None if the encoding is unusual or damaged,
        which protobuf has to judge.
    """
    ranges: dict[int, memoryview] = {}
    try:
        fields = list(_fields(data, 0, len(data)))
        if [field.wire_type for field in fields if field.number == _GRAPH] != [_LENGTH_DELIMITED]:
            return None
        pieces = [
            _message(_GRAPH, _light_graph(data, field, smallest, ranges))
            if field.number == _GRAPH
            else data[field.start : field.end]
            for field in fields
        ]
    except _IrregularError:
        return None
    return b"".join(pieces), ranges


def nesting(data: memoryview) -> int:
    """The depth to which bodies of nodes in a serialised model are nested; 0 if the model is damaged.

    Protobuf fails beyond some depth without giving the reason.
    """
    deepest = 0
    pending = [(_MODEL, data, 0)]
    try:
        while pending:
            inside, message, depth = pending.pop()
            for field in _fields(message, 0, len(message)):
                step = inside.get(field.number)
                if step is not None and field.wire_type == _LENGTH_DELIMITED:
                    within = depth + (inside is _ATTRIBUTES)
                    deepest = max(deepest, within)
                    pending.append((step, message[field.value : field.end], within))
    except _IrregularError:
        return 0
    return deepest


def put_together(light: bytes, ranges: Mapping[int, memoryview]) -> Iterator[bytes | memoryview]:
    """Insert data into the initialisers of a serialised model; yields the pieces of the result.

    Args:
        light: the serialised model without that data. Its references to the data are removed.
        ranges: data by the initialiser's index.
    """
    data = memoryview(light)
    for field in _fields(data, 0, len(data)):
        if field.number != _GRAPH:
            yield data[field.start : field.end]
            continue
        pieces = list(_full_graph(data, field, ranges))
        yield _key(_GRAPH) + _encoded(sum(map(len, pieces)))
        yield from pieces


def _light_graph(data: memoryview, graph: _Field, smallest: int, ranges: dict[int, memoryview]) -> bytes:
    pieces: list[bytes | memoryview] = []
    index = 0
    for field in _fields(data, graph.value, graph.end):
        if field.number != _INITIALIZER or field.wire_type != _LENGTH_DELIMITED:
            pieces.append(data[field.start : field.end])
            continue
        parts = list(_fields(data, field.value, field.end))
        raw = [part for part in parts if part.number == _RAW_DATA and part.wire_type == _LENGTH_DELIMITED]
        if len(raw) == 1 and raw[0].end - raw[0].value >= smallest and not any(part.number in _PLACE for part in parts):
            ranges[index] = data[raw[0].value : raw[0].end]
            rest = b"".join(data[part.start : part.end] for part in parts if part is not raw[0])
            pieces.append(_message(_INITIALIZER, rest))
        else:
            pieces.append(data[field.start : field.end])
        index += 1
    return b"".join(pieces)


def _full_graph(data: memoryview, graph: _Field, ranges: Mapping[int, memoryview]) -> Iterator[bytes | memoryview]:
    index = 0
    for field in _fields(data, graph.value, graph.end):
        if field.number != _INITIALIZER:
            yield data[field.start : field.end]
            continue
        if index in ranges:
            yield from _full_tensor(data, field, ranges[index])
        else:
            yield data[field.start : field.end]
        index += 1


def _full_tensor(data: memoryview, tensor: _Field, raw: memoryview) -> Iterator[bytes | memoryview]:
    """Yield fields in the order of their numbers, as protobuf writes them."""
    parts = [field for field in _fields(data, tensor.value, tensor.end) if field.number not in _PLACE]
    before = b"".join(data[part.start : part.end] for part in parts if part.number < _RAW_DATA)
    after = b"".join(data[part.start : part.end] for part in parts if part.number > _RAW_DATA)
    head = before + _key(_RAW_DATA) + _encoded(len(raw))
    yield _key(_INITIALIZER) + _encoded(len(head) + len(raw) + len(after)) + head
    yield raw
    yield after


def _fields(data: memoryview, position: int, end: int) -> Iterator[_Field]:
    while position < end:
        start = position
        key, position = varint(data, position)
        number, wire_type = key >> 3, key & 7
        if wire_type == _VARINT:
            value, (_, position) = position, varint(data, position)
        elif wire_type == _LENGTH_DELIMITED:
            length, value = varint(data, position)
            position = value + length
        elif wire_type in _FIXED_BYTES:
            value, position = position, position + _FIXED_BYTES[wire_type]
        else:
            raise _IrregularError
        if position > end:
            raise _IrregularError
        yield _Field(number, wire_type, start, value, position)


def _message(number: int, content: bytes) -> bytes:
    return _key(number) + _encoded(len(content)) + content


def _key(number: int) -> bytes:
    return _encoded(number << 3 | _LENGTH_DELIMITED)


def _encoded(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= _VARINT_BITS
    encoded.append(value)
    return bytes(encoded)
