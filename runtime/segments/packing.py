"""Packs the modules of several devices into one .vmfb.

A .vmfb is a zip of which IREE reads the first module, by offsets from the file's start. So further modules may follow
as further parts: stock tools run the first module of such a file as it is, and any other once ``unzip -p FILE PART``
has taken it out.
"""

from __future__ import annotations

import shutil
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

# Weights and machine code are used where they are mapped, if they lie at multiples of this.
_ALIGNMENT = 64
_LOCAL_HEADER_BYTES = 30
# A field of a part's header that only fills it up, as Android's zipalign writes it.
_FILLER = struct.Struct("<HH")
_FILLER_ID = 0xD935
# The field behind all others that holds the sizes of a large part: ``zipfile`` adds it.
_LARGE_SIZES_BYTES = 20


def pack(path: Path, parts: Mapping[str, Path]) -> None:
    """Add modules to a .vmfb as parts, uncompressed and aligned; equal files give equal bytes."""
    with zipfile.ZipFile(path, "a") as archive:
        for name, module in parts.items():
            info = zipfile.ZipInfo(name)
            info.file_size = module.stat().st_size
            begin = archive.start_dir + _LOCAL_HEADER_BYTES + len(name.encode()) + _FILLER.size
            if info.file_size * 1.05 > zipfile.ZIP64_LIMIT:
                begin += _LARGE_SIZES_BYTES
            filled = -begin % _ALIGNMENT
            info.extra = _FILLER.pack(_FILLER_ID, filled) + bytes(filled)
            with module.open("rb") as source, archive.open(info, "w") as target:
                shutil.copyfileobj(source, target)
