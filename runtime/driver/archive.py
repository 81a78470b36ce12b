"""A .vmfb as an archive: IREE writes a zip of parts, none compressed, each with a checksum (CRC-32)."""

from __future__ import annotations

import errno
import io
import mmap
import struct
import zipfile
import zlib
from typing import IO, Any, cast

Content = bytes | mmap.mmap | memoryview

# Names of parts are plain ASCII; by default Python would load a code page for them.
_NAMES = "utf-8"
_START = b"PK\x03\x04"
_HEADER = struct.Struct("<26xHH")
"""Before each part: the lengths of its name and of what follows that, at the end."""


def is_archive(content: Content) -> bool:
    """Whether there are checksums; IREE can also write a module without."""
    return bytes(content[: len(_START)]) == _START


def damage(content: Content, *, whole: bool = True, file: IO[bytes] | None = None) -> str | None:
    """What of an archive is not as it was written; None if nothing is.

    Args:
        content: of the file.
        whole: whether all parts are read, or only the first, which is the program without weights and kernels.
        file: where the directory is read; by default in the content.
    """
    try:
        with zipfile.ZipFile(_as_file(content) if file is None else file, metadata_encoding=_NAMES) as archive:
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


def part_of(content: Content, name: str) -> memoryview | None:
    """The bytes of a part of an archive that is not damaged; None if it has no such part."""
    with zipfile.ZipFile(_as_file(content), metadata_encoding=_NAMES) as archive:
        found = next((each for each in archive.infolist() if each.filename == name), None)
    return None if found is None else _content(memoryview(content), found)


def _as_file(content: Content) -> IO[bytes]:
    """The content as something to read and seek in, without a copy."""
    return cast("IO[bytes]", _Reader(memoryview(content)))


class _Reader(io.RawIOBase):
    """Reads memory as a file is read."""

    def __init__(self, content: memoryview) -> None:
        self._content = content
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: len(self._content)}[whence]
        if base + offset < 0:
            raise OSError(errno.EINVAL, "there is nothing before the beginning")
        self._place = base + offset
        return self._place

    def readinto(self, target: Any) -> int:
        part = self._content[self._place :][: len(target)]
        target[: len(part)] = part
        self._place += len(part)
        return len(part)


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
