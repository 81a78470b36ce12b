"""The directory at the end of a zip archive, as IREE and Python write it.

Python's ``zipfile`` reads and writes much more, and takes longer to import than all of a session's other modules
together. Format: PKWARE, "APPNOTE.TXT - .ZIP File Format Specification", sections 4.3.12 to 4.3.16 and 4.5.3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

Read = Callable[[int, int], bytes | memoryview]
"""The bytes from a place on, fewer where the archive ends; both numbers are not negative."""

_END = struct.Struct("<4s8xLLH")
_END_MARK = b"PK\x05\x06"
_MOST_COMMENT = (1 << 16) - 1
# For archives that are longer than 4 GiB: where their end is described, and that description.
_PLACE = struct.Struct("<4s4xQ4x")
_PLACE_MARK = b"PK\x06\x07"
_LONG_END = struct.Struct("<4s36xQQ")
_LONG_END_MARK = b"PK\x06\x06"
_ENTRY = struct.Struct("<4s6xH4xLLLHHH8xL")
_ENTRY_MARK = b"PK\x01\x02"
_FIELD = struct.Struct("<HH")
_LONG_SIZES = 1
_IN_FIELD = (1 << 32) - 1


class Part(NamedTuple):
    """A part of an archive.

    Attributes:
        name: of the part.
        checksum: of its content, a CRC-32.
        size: of its content, in bytes.
        begin: where the header before its content begins.
        is_stored: whether the content is not compressed.
    """

    name: str
    checksum: int
    size: int
    begin: int
    is_stored: bool


def read_directory(read: Read, size: int) -> list[Part]:
    """The parts of an archive, in the directory's order.

    Args:
        read: reads the archive.
        size: of the archive, in bytes.

    Raises:
        ValueError: if its end is missing, or the directory is not as the end describes it.
    """
    first = max(size - _END.size - _MOST_COMMENT, 0)
    end = max(size - _END.size, 0)
    if bytes(read(end, len(_END_MARK))) != _END_MARK:
        mark = bytes(read(first, size - first)).rfind(_END_MARK)
        if mark < 0:
            raise ValueError("the archive has no end")
        end = first + mark
    _, length, begin, _ = _unpacked(_END, read, end, _END_MARK)
    place = end - _PLACE.size
    if place >= 0 and bytes(read(place, len(_PLACE_MARK))) == _PLACE_MARK:
        _, end = _unpacked(_PLACE, read, place, _PLACE_MARK)
        if end + _LONG_END.size > place:
            raise ValueError("the archive's end is not where it is said to be")
        _, length, begin = _unpacked(_LONG_END, read, end, _LONG_END_MARK)
    if begin + length != end:
        raise ValueError("the directory does not end where the archive's end begins")
    return _entries(bytes(read(begin, length)), length)


def _unpacked(form: struct.Struct, read: Read, place: int, mark: bytes) -> tuple[int, ...]:
    """The fields of a record; the first is its mark."""
    content = bytes(read(place, form.size))
    if len(content) < form.size or not content.startswith(mark):
        raise ValueError(f"there is no {mark!r} at {place}")
    return form.unpack(content)


def _entries(directory: bytes, length: int) -> list[Part]:
    if len(directory) < length:
        raise ValueError("the directory is cut off")
    parts, at = [], 0
    while at < length:
        if length - at < _ENTRY.size:
            raise ValueError("an entry of the directory is cut off")
        mark, method, checksum, packed, size, *lengths, begin = _ENTRY.unpack_from(directory, at)
        name_end = at + _ENTRY.size + lengths[0]
        following = at + _ENTRY.size + sum(lengths)
        if mark != _ENTRY_MARK or following > length:
            raise ValueError("an entry of the directory is damaged")
        name = directory[at + _ENTRY.size : name_end].decode("utf-8")
        if _IN_FIELD in (packed, size, begin):
            size, begin = _long(directory[name_end : name_end + lengths[1]], packed, size, begin)
        parts.append(Part(name, checksum, size, begin, method == 0))
        at = following
    return parts


def _long(extra: bytes, packed: int, size: int, begin: int) -> tuple[int, int]:
    """Size and begin of a part, of which those that do not fit 32 bits are in an extra field."""
    at = 0
    while at + _FIELD.size <= len(extra):
        kind, length = _FIELD.unpack_from(extra, at)
        at += _FIELD.size
        if kind == _LONG_SIZES:
            values = [int.from_bytes(extra[index : index + 8], "little") for index in range(at, at + length, 8)]
            wanted = [field_value == _IN_FIELD for field_value in (size, packed, begin)]
            if sum(wanted) > len(values) or length % 8 or at + length > len(extra):
                break
            left = iter(values)
            size, _, begin = (
                next(left) if is_wanted else field_value
                for field_value, is_wanted in zip((size, packed, begin), wanted, strict=True)
            )
            return size, begin
        at += length
    raise ValueError("an entry of the directory lacks its sizes")
