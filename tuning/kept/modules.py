"""Modules of earlier compilations, so that compiling again with the same plan does not run the compiler.

They lie in the user's cache folder and not beside the database, which may be shared: a module is code, and only what
this user wrote is run.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from platformdirs import user_cache_path

from sartor.tuning.kept.files import SUFFIX, is_only_ours, make_room, opened
from sartor.workspace import partial_file

_LOG = logging.getLogger(__name__)
_AT_ONCE = 16 << 20
# A header is a line of two numbers and a hash.
_LONGEST_HEADER = 4096

USUAL_LIMIT = 1 << 30
"""Bytes that all modules together may take: eight of ResNet-50, or one of VGG-16."""


@dataclass(frozen=True)
class KeptModules:
    """Modules by the hash of all that they are made of. What cannot be read or written counts as missing.

    Attributes:
        folder: where they lie; it may be deleted at any time.
        limit: bytes that they may take; those that were not used for longest are removed.
    """

    folder: Path
    limit: int = USUAL_LIMIT

    @staticmethod
    def of_user() -> KeptModules:
        """Those in the user's cache folder."""
        return KeptModules(user_cache_path("sartor") / "modules")

    def restore(self, key: str, target: Path) -> int | None:
        """Write the module of a key to a file.

        Returns:
            The bytes of its weights; None if there is no such module, or not as it was written.
        """
        path = self._path(key)
        try:
            with opened(path) as file:
                if not is_only_ours(file):
                    return None
                header = _Header.read(file)
                if header is None or _copied(file, target, key, header.weight_bytes) != header.sha256:
                    _LOG.info("'%s' is not as it was written, and is not used", path)
                    target.unlink(missing_ok=True)
                    return None
            os.utime(path)
        except OSError as error:
            _LOG.debug("no module is kept in '%s': %s", path, error)
            return None
        return header.weight_bytes

    def keep(self, key: str, module: Path, weight_bytes: int) -> None:
        """Keep a copy of a module, unless it takes more than the limit."""
        try:
            size = module.stat().st_size
            if size + _LONGEST_HEADER > self.limit:
                return
            make_room(self.folder, size + _LONGEST_HEADER, self.limit)
            with partial_file(self.folder) as partial:
                header = _Header(weight_bytes, _hash_of(module, key, weight_bytes))
                with partial.open("wb") as file, module.open("rb") as content:
                    file.write(header.line())
                    while block := content.read(_AT_ONCE):
                        file.write(block)
                os.replace(partial, self._path(key))
        except OSError as error:
            _LOG.info("a module is not kept in '%s': %s", self.folder, error)

    def remove(self, key: str) -> None:
        """Remove the module of a key, if there is one."""
        with suppress(OSError):
            self._path(key).unlink()

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{SUFFIX}"


@dataclass(frozen=True)
class _Header:
    """The first line of a kept module.

    Attributes:
        weight_bytes: bytes of the module's weights.
        sha256: of the key, this number and the module.
    """

    weight_bytes: int
    sha256: str

    def line(self) -> bytes:
        return json.dumps([self.weight_bytes, self.sha256]).encode() + b"\n"

    @staticmethod
    def read(file: BinaryIO) -> _Header | None:
        """The header at the beginning of a file, or None."""
        try:
            weight_bytes, sha256 = json.loads(file.readline(_LONGEST_HEADER))
        except (ValueError, TypeError):
            return None
        is_valid = type(weight_bytes) is int and weight_bytes >= 0 and isinstance(sha256, str)
        return _Header(weight_bytes, sha256) if is_valid else None


def _begun(key: str, weight_bytes: int) -> hashlib._Hash:
    return hashlib.sha256(f"{key} {weight_bytes}\n".encode())


def _hash_of(module: Path, key: str, weight_bytes: int) -> str:
    hashed = _begun(key, weight_bytes)
    with module.open("rb") as content:
        while block := content.read(_AT_ONCE):
            hashed.update(block)
    return hashed.hexdigest()


def _copied(content: BinaryIO, target: Path, key: str, weight_bytes: int) -> str:
    """Copy what follows a header, and hash what was copied."""
    hashed = _begun(key, weight_bytes)
    with target.open("wb") as file:
        while block := content.read(_AT_ONCE):
            hashed.update(block)
            file.write(block)
    return hashed.hexdigest()
