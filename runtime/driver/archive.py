"""A .vmfb as an archive: IREE writes a zip of parts, none compressed, each with a checksum (CRC-32)."""

from __future__ import annotations

import io
import mmap
import os
import struct
import zlib

from sartor.runtime.files.zip_directory import Part, read_directory

Content = bytes | mmap.mmap | memoryview

_PROGRAM = "module.fb"
_START = b"PK\x03\x04"
_HEADER = struct.Struct("<26xHH")
"""Before each part: the lengths of its name and of what follows that, at the end."""


def is_archive(content: Content) -> bool:
    """Whether there are checksums; IREE can also write a module without."""
    return bytes(content[: len(_START)]) == _START


def damage(content: Content, *, whole: bool = True, file: io.FileIO | None = None) -> str | None:
    """What of an archive is not as it was written; None if nothing is.

    Args:
        content: of the file.
        whole: whether all parts are read, or only the first, which is the program without weights and kernels.
        file: where the directory is read; by default in the content.
    """
    try:
        parts = _parts(content, file)[: None if whole else 1]
    except ValueError:
        # It is at the end, so that a file without it is truncated, even if its beginning can be parsed.
        return "it is truncated, or the directory at its end cannot be read"
    if not parts:
        return "it has no parts"
    with memoryview(content) as view:
        return next(
            (f"the checksum of its part '{part.name}' is wrong" for part in parts if not _is_sound(view, part)),
            None,
        )


def foreign_part(content: Content, file: io.FileIO | None = None) -> str | None:
    """The name of the first part of an archive that is no module; None if it may be one.

    Args:
        content: of the file.
        file: as for ``damage``.
    """
    try:
        parts = _parts(content, file)
    except ValueError:
        return None
    return parts[0].name if parts and parts[0].name != _PROGRAM else None


def part_of(content: Content, name: str) -> memoryview | None:
    """The bytes of a part of an archive that is not damaged; None if it has no such part."""
    part_named = next((part for part in _parts(content) if part.name == name), None)
    return None if part_named is None else _content(memoryview(content), part_named)


def _parts(content: Content, file: io.FileIO | None = None) -> list[Part]:
    if file is not None:
        handle = file.fileno()
        return read_directory(lambda begin, size: os.pread(handle, size, begin), len(content))
    with memoryview(content) as view:
        return read_directory(lambda begin, size: bytes(view[begin : begin + size]), len(content))


def _is_sound(view: memoryview, part: Part) -> bool:
    content = _content(view, part)
    return content is not None and zlib.crc32(content) == part.checksum


def _content(view: memoryview, part: Part) -> memoryview | None:
    """The bytes of a part; None if its header is cut off, or it is compressed."""
    header = view[part.begin :][: _HEADER.size]
    if len(header) < _HEADER.size or not part.is_stored:
        return None
    begin = part.begin + _HEADER.size + sum(_HEADER.unpack(header))
    return view[begin : begin + part.size]
