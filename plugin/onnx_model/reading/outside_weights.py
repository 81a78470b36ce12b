"""A serialised model without its weights, made without parsing what may be gigabytes.

The encoding is that of Protocol Buffers: a number that says field and kind, then the value or its length and bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from mmap import mmap

# ModelProto.graph; GraphProto.initializer and sparse_initializer (onnx.proto).
_GRAPH, _WEIGHTS = 7, (5, 15)
_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
_FIXED = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}
_CONTINUES, _LONGEST = 0x80, 10


def outside_weights(content: bytes | mmap) -> bytes:
    """A model without its graph's weights; all of it if it is no model, which somebody else says."""
    kept: list[bytes] = []
    try:
        for field, first, begin, end in _fields(content, 0, len(content)):
            if field == _GRAPH:
                inner = _fields(content, begin, end)
                graph = b"".join(content[start:last] for field, start, _, last in inner if field not in _WEIGHTS)
                kept += [bytes([_GRAPH << 3 | _BYTES]), _written(len(graph)), graph]
            else:
                kept.append(content[first:end])
    except ValueError:
        return content[:]
    return b"".join(kept)


def _fields(content: bytes | mmap, begin: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of a message in ``content[begin:end]``: the number, and where the field, its value and their end are.

    Raises:
        ValueError: if it is no message.
    """
    while begin < end:
        first = begin
        key, begin = _varint(content, begin, end)
        kind = key & 7
        if kind == _VARINT:
            _, last = _varint(content, begin, end)
        elif kind == _BYTES:
            size, begin = _varint(content, begin, end)
            last = begin + size
        elif kind in _FIXED:
            last = begin + _FIXED[kind]
        else:
            raise ValueError(f"a value of kind {kind}")
        if last > end:
            raise ValueError("a value without its end")
        yield key >> 3, first, begin, last
        begin = last


def _varint(content: bytes | mmap, begin: int, end: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and where it ends."""
    value = 0
    for place in range(begin, min(end, begin + _LONGEST)):
        value |= (content[place] & ~_CONTINUES) << 7 * (place - begin)
        if not content[place] & _CONTINUES:
            return value, place + 1
    raise ValueError("a number without its end")


def _written(number: int) -> bytes:
    """A number as ``_varint`` reads it."""
    written = bytearray()
    while number >= _CONTINUES:
        written.append(number & ~_CONTINUES & 0xFF | _CONTINUES)
        number >>= 7
    return bytes([*written, number])
