"""Checksums of weight files, which have none of their own: a part of the .vmfb that needs the files holds them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from sartor.runtime.files.regular_files import check_regular

PART = "sartor.checksums.json"


def write_checksums(path: Path, files: Mapping[str, Path]) -> None:
    """Write the checksums of weight files by their scopes, to be packed as ``PART``."""
    found = {scope: checksum(file) for scope, file in files.items()}
    path.write_text(json.dumps(found, sort_keys=True), encoding="ascii")


def read_checksums(content: memoryview | None) -> dict[str, str]:
    """The checksums by scope in the content of ``PART``; none if a module has no such part, or an unknown one."""
    try:
        found = json.loads(bytes(content or b"{}"))
    except (ValueError, RecursionError):
        return {}
    return {scope: str(value) for scope, value in found.items()} if isinstance(found, dict) else {}


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
