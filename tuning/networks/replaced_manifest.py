"""Replaces the manifest in a compiled module, which takes milliseconds where compiling again takes seconds.

Plans of equal code differ in predicted times only. IREE stores the manifest as the bytes of its text, so a text of the
same length can take its place: the module is then the one that compiling with that text gives.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path

_FIXED = struct.Struct("<26xHH")
"""The local header of a part: the lengths of its name and of what follows that, at the end."""
_CHECKSUM_IN_HEADER, _CHECKSUM_IN_DIRECTORY = 14, 16
_CHECKSUM = struct.Struct("<I")
# The checksum is then stored a third time, after the content.
_HAS_TRAILER = 1 << 3


def replace_manifest(path: Path, old: str, new: str) -> bool:
    """Replace a manifest in a module's file, and correct the file's checksum.

    Args:
        path: a .vmfb, whose first part is the program.
        old: the text with which it was compiled.
        new: the text that it should contain.

    Returns:
        Whether it was replaced. If not, the file is as before: the lengths differ, or ``old`` is not in it.
    """
    before, after = old.encode(), new.encode()
    with path.open("r+b") as file, zipfile.ZipFile(file) as archive:
        program, directory = archive.infolist()[0], archive.start_dir
        file.seek(program.header_offset)
        begin = program.header_offset + _FIXED.size + sum(_FIXED.unpack(file.read(_FIXED.size)))
        file.seek(begin)
        content = file.read(program.file_size)
        is_plain = program.compress_type == zipfile.ZIP_STORED and not program.flag_bits & _HAS_TRAILER
        if not is_plain or len(before) != len(after) or before not in content:
            return False
        content = content.replace(before, after)
        checksum = _CHECKSUM.pack(zlib.crc32(content))
        for place, written in (
            (begin, content),
            (program.header_offset + _CHECKSUM_IN_HEADER, checksum),
            (directory + _CHECKSUM_IN_DIRECTORY, checksum),
        ):
            file.seek(place)
            file.write(written)
    return True
