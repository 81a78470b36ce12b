"""Translated executables of earlier compilations, so that a kernel is not compiled again for every module it is in.

What one compilation of a module translates is one file: a line that lists the entries, then their bytes. Like kept
modules they are code, and lie in the user's cache folder.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from platformdirs import user_cache_path

from sartor.tuning.kept.files import SUFFIX, files_in, is_only_ours, make_room, opened
from sartor.workspace import partial_file

_LOG = logging.getLogger(__name__)
# A line has some hundred entries of two hashes and a number.
_LONGEST_LINE = 4 << 20

USUAL_LIMIT = 256 << 20
"""Bytes that all of it may take: an executable takes about 20 KiB, those of a cold compilation about 5 MiB."""


@dataclass(frozen=True)
class KeptCode:
    """Code by the hash of all that it is made of. What cannot be read or written counts as missing.

    Attributes:
        folder: where it lies; it may be deleted at any time.
        limit: bytes that it may take; files of which nothing was used for longest are removed.
    """

    folder: Path
    limit: int = USUAL_LIMIT

    @staticmethod
    def of_user() -> KeptCode:
        """That in the user's cache folder."""
        return KeptCode(user_cache_path("sartor") / "code")

    def find(self, keys: Collection[str]) -> dict[str, bytes]:
        """The code of those of ``keys`` that are kept, as it was written."""
        missing, code = set(keys), dict[str, bytes]()
        for path in sorted(files_in(self.folder)) if missing else ():
            try:
                with opened(path) as file:
                    read = dict(_entries(file, missing)) if is_only_ours(file) else {}
                if read:
                    os.utime(path)
            except OSError as error:
                _LOG.debug("no code is kept in '%s': %s", path, error)
                continue
            code |= read
            missing -= read.keys()
        return code

    def forget(self) -> bool:
        """Remove all code, as some of it is wrong, and which is not known; returns whether there was any."""
        paths = files_in(self.folder)
        for path in paths:
            with suppress(OSError):
                path.unlink()
        return bool(paths)

    def add(self, entries: Mapping[str, bytes]) -> None:
        """Keep code, unless it takes more than the limit."""
        kept = sorted(entries.items())
        line = json.dumps([[key, len(content), _digest(key, content)] for key, content in kept]).encode() + b"\n"
        size = len(line) + sum(map(len, entries.values()))
        if not entries or size > self.limit or len(line) > _LONGEST_LINE:
            return
        try:
            make_room(self.folder, size, self.limit)
            with partial_file(self.folder) as partial:
                partial.write_bytes(line + b"".join(content for _, content in kept))
                os.replace(partial, self.folder / f"{hashlib.sha256(line).hexdigest()}{SUFFIX}")
        except OSError as error:
            _LOG.info("code is not kept in '%s': %s", self.folder, error)


def _entries(file: BinaryIO, keys: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """Those of ``keys`` that a file has, undamaged."""
    line = file.readline(_LONGEST_LINE)
    place = len(line)
    with suppress(ValueError, TypeError):
        for key, size, digest in json.loads(line):
            if key in keys:
                file.seek(place)
                content = file.read(size)
                if _digest(key, content) == digest:
                    yield key, content
                else:
                    _LOG.info("code in '%s' is not as it was written, and is not used", file.name)
            place += size


def _digest(key: str, content: bytes) -> str:
    return hashlib.sha256(f"{key}\n".encode() + content).hexdigest()
