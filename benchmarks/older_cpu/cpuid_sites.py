"""Finds the CPUID instructions of a library for x86-64, by disassembling functions that contain their bytes."""

from __future__ import annotations

import re
import struct
import subprocess
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CPUID = b"\x0f\xa2"
_HEADER, _SEGMENT = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQQQ")
_CODE, _FRAMES, _EXECUTABLE = 1, 0x6474E550, 1
# Of the table of functions: 4 bytes, relative to the table's start.
_TABLE = b"\x01\x1b\x03\x3b"
_ENTRY = struct.Struct("<ii")


@dataclass(frozen=True)
class Segment:
    """A part of a file that is loaded: its place in memory and in the file, in bytes."""

    kind: int
    flags: int
    offset: int
    address: int
    size: int


def cpuid_sites(library: Path) -> list[int]:
    """Offsets in the file of all CPUID instructions.

    Bytes that look like one lie within other instructions, too: each is decoded from the start of the function that it
    is in, which the table of stack frames has (System V ABI, AMD64 supplement; Linux Standard Base, ``.eh_frame_hdr``).

    Raises:
        ValueError: if the library has no such table.
    """
    data = library.read_bytes()
    segments = list(_segments(data))
    starts = _functions(data, segments)
    found = []
    for part in segments:
        if part.kind != _CODE or not part.flags & _EXECUTABLE:
            continue
        for match in re.finditer(re.escape(CPUID), data[part.offset : part.offset + part.size]):
            address = part.address + match.start()
            before = bisect_right(starts, address)
            if before and _is_decoded(library, starts[before - 1], address):
                found.append(part.offset + match.start())
    return found


def _segments(data: bytes) -> Iterator[Segment]:
    header = _HEADER.unpack_from(data)
    table, size, count = header[5], header[9], header[10]
    for index in range(count):
        kind, flags, offset, address, _, length, *_ = _SEGMENT.unpack_from(data, table + index * size)
        yield Segment(kind, flags, offset, address, length)


def _functions(data: bytes, segments: list[Segment]) -> list[int]:
    """Addresses at which functions start, in order."""
    frames = next((part for part in segments if part.kind == _FRAMES), None)
    if frames is None or data[frames.offset : frames.offset + len(_TABLE)] != _TABLE:
        raise ValueError("it has no table of functions")
    (count,) = struct.unpack_from("<I", data, frames.offset + 8)
    table = data[frames.offset + 12 : frames.offset + 12 + count * _ENTRY.size]
    return sorted(frames.address + start for start, _ in _ENTRY.iter_unpack(table))


def _is_decoded(library: Path, start: int, address: int) -> bool:
    """Whether the instruction at an address, decoded from the start of its function, is CPUID."""
    command = ["objdump", "-d", f"--start-address={start}", f"--stop-address={address + len(CPUID)}", str(library)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return re.search(rf"^\s*{address:x}:\t[0-9a-f ]+\tcpuid", listing, re.MULTILINE) is not None
