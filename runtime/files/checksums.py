"""Checksums of weight files, which have none of their own: a part of the .vmfb that needs the files holds them."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path

from sartor.errors import UsageError
from sartor.runtime.files.regular_files import check_regular

PART = "sartor.checksums.json"
# Follows a scope where the checksum is of samples.
_SAMPLED = " sampled"
# Smaller files are read whole, which takes less than a millisecond.
_WHOLE_BYTES = 1 << 20
_SAMPLES = 16
_SAMPLE_BYTES = 4096


def write_checksums(path: Path, files: Mapping[str, Path]) -> None:
    """Write the checksums of weight files by their scopes, to be packed as ``PART``."""
    checksums = {scope: checksum(file) for scope, file in files.items()}
    for scope, file in files.items():
        with file.open("rb") as opened:
            checksums[scope + _SAMPLED] = _of_samples(opened.fileno())
    path.write_text(json.dumps(checksums, sort_keys=True), encoding="ascii")


def read_checksums(content: memoryview | None) -> dict[str, str]:
    """The checksums by scope in the content of ``PART``; none if a module has no such part, or an unknown one."""
    try:
        checksums = json.loads(bytes(content or b"{}"))
    except (ValueError, RecursionError):
        return {}
    return {scope: str(value) for scope, value in checksums.items()} if isinstance(checksums, dict) else {}


def checksum(path: Path) -> str:
    """The SHA-256 of a file's content.

    Raises:
        OSError: if it cannot be read.
    """
    # Sessions read checksums only; this takes longer to load than they do.
    import hashlib

    check_regular(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_samples(path: Path, handle: int, scope: str, known: Mapping[str, str]) -> None:
    """Compare parts of a weight file with what a module knows of it: enough to notice the file of another module.

    Args:
        path: names the file in errors.
        handle: of the open file.
        scope: whose weights they are.
        known: as ``read_checksums`` gives them; a module of an earlier version knows of no samples.

    Raises:
        UsageError: if they differ.
        OSError: if it cannot be read.
    """
    expected = known.get(scope + _SAMPLED)
    if expected is not None and _of_samples(handle) != expected:
        raise UsageError(wrong_weights(f"'{path}'"))


def check_whole(content: memoryview, label: str, scope: str, known: Mapping[str, str]) -> None:
    """Compare the whole content of a weight file with what a module knows of it, as ``check_samples`` does parts.

    Raises:
        UsageError: if it differs; ``label`` names the file.
    """
    import hashlib

    expected = known.get(scope)
    if expected is not None and hashlib.sha256(content).hexdigest() != expected:
        raise UsageError(wrong_weights(label))


def wrong_weights(label: str) -> str:
    """What is said of a weight file whose checksum is not the module's; ``label`` names it."""
    return f"the weights {label} are damaged, or those of another module; copy or compile both again"


def _of_samples(handle: int) -> str:
    """The CRC-32 of a small file, or of parts of a large one: its beginning, its end, and some evenly between."""
    size = os.fstat(handle).st_size
    if size <= _WHOLE_BYTES:
        places, length = [0], size
    else:
        step = (size - _SAMPLE_BYTES) / (_SAMPLES - 1)
        places, length = [int(number * step) for number in range(_SAMPLES)], _SAMPLE_BYTES
    digest = zlib.crc32(str(size).encode())
    for place in places:
        digest = zlib.crc32(os.pread(handle, length, place), digest)
    return f"{digest:08x}"
