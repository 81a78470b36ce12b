"""A .vmfb as an archive: IREE writes a zip of parts, none compressed, each with a checksum (CRC-32)."""

from __future__ import annotations

import io
import mmap
import struct
import zipfile
import zlib
from typing import IO, cast

_START = b"PK\x03\x04"
_HEADER = struct.Struct("<26xHH")
"""Before each part: the lengths of its name and of what follows that, at the end."""


def is_archive(content: bytes | mmap.mmap) -> bool:
    """Whether there are checksums; IREE can also write a module without."""
    return content[: len(_START)] == _START


def damage(content: bytes | mmap.mmap, *, whole: bool = True) -> str | None:
    """What of an archive is not as it was written; None if nothing is.

    Args:
        content: of the file.
        whole: whether all parts are read, or only the first, which is the program without weights and kernels.
    """
    try:
        with zipfile.ZipFile(_as_file(content)) as archive:
            parts = archive.infolist()[: None if whole else 1]
    except (zipfile.BadZipFile, ValueError, struct.error, NotImplementedError):
        # It is at the end, so that a file without it is truncated, even if its beginning can be parsed.
        return "it is truncated, or the directory at its end cannot be read"
    if not parts:
        return "it has no parts"
    with memoryview(content) as view:
        return next(
            (f"the checksum of its part '{each.filename}' is wrong" for each in parts if not _is_sound(view, each)),
            None,
        )


def part_of(content: bytes | mmap.mmap, name: str) -> memoryview | None:
    """The bytes of a part of an archive that is not damaged; None if it has no such part."""
    with zipfile.ZipFile(_as_file(content)) as archive:
        found = next((each for each in archive.infolist() if each.filename == name), None)
    return None if found is None else _content(memoryview(content), found)


def _as_file(content: bytes | mmap.mmap) -> IO[bytes]:
    """What can be mapped can be read and sought in as a file, too."""
    return io.BytesIO(content) if isinstance(content, bytes) else cast("IO[bytes]", content)


def _is_sound(view: memoryview, part: zipfile.ZipInfo) -> bool:
    content = _content(view, part)
    return content is not None and zlib.crc32(content) == part.CRC


def _content(view: memoryview, part: zipfile.ZipInfo) -> memoryview | None:
    """The bytes of a part; None if its header is cut off, or it is compressed."""
    header = view[part.header_offset :][: _HEADER.size]
    if len(header) < _HEADER.size or part.compress_type != zipfile.ZIP_STORED:
        return None
    begin = part.header_offset + _HEADER.size + sum(_HEADER.unpack(header))
    return view[begin : begin + part.file_size]
