"""Values of earlier compilations with the files that they need, as a model's layers with its weights.

A value is one file: a line that lists the others, then its bytes. The others lie beside it. Values are read by programs
that trust them, so like kept modules they lie in the user's cache folder.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

from sartor.tuning.kept.files import SUFFIX, files_in, is_only_ours, make_room, opened
from sartor.workspace import partial_file

_LOG = logging.getLogger(__name__)
_LONGEST_LINE = 1 << 16
_AT_ONCE = 16 << 20

FileState = tuple[int, int, int]

USUAL_LIMIT = 2 << 30
"""Bytes that all of them may take: ten models of the size of ResNet-50, or one of VGG-16."""


@dataclass(frozen=True)
class KeptValues:
    """Values by the hash of all that they are made of. What cannot be read or written counts as missing.

    Attributes:
        folder: where they lie; it may be deleted at any time.
        limit: bytes that they may take; files that were not used for longest are removed.
    """

    folder: Path
    limit: int = USUAL_LIMIT

    @staticmethod
    def of_imports() -> KeptValues:
        """Imported models in the user's cache folder."""
        return KeptValues(user_cache_path("sartor") / "imports")

    def may_have(self, beginning: str) -> bool:
        """Whether there is a value whose key begins so."""
        return bool(files_in(self.folder, beginning))

    def fits(self, files: Sequence[Path]) -> bool:
        """Whether a value with such files takes less than the limit; not if they cannot be looked at."""
        with suppress(OSError):
            return _size(b"", files) <= self.limit
        return False

    def restore(self, key: str, directory: Path, names: Sequence[str] = ()) -> bytes | None:
        """Put the files of a value into a directory, by their names or by others; returns the value, None if anything
        is missing, or is not as it was written."""
        try:
            with opened(self._path(key)) as file:
                if not is_only_ours(file):
                    return None
                line, content = file.readline(_LONGEST_LINE), file.read()
            files, digest = _listed(line)
            places = [directory / Path(name).name for name in names or [name for name, _ in files]]
            if digest != _digest(key, files, content) or not self._restored(key, files, places):
                _LOG.info("a value in '%s' is not as it was written, and is not used", self.folder)
                return None
            os.utime(self._path(key))
        except (OSError, ValueError, TypeError) as error:
            _LOG.debug("no value is kept in '%s': %s", self.folder, error)
            return None
        return content

    def keep(
        self,
        key: str,
        content: bytes,
        files: Sequence[Path],
        made: Sequence[FileState],
        digests: Sequence[str] | None = None,
    ) -> None:
        """Keep a value and its files, as they were ``made``, unless they take more than the limit.

        Nothing is kept if other files have their names by now. The files are not to be written again in place.

        Args:
            key: what it is found by.
            content: the value.
            files: those that it needs.
            made: what they were.
            digests: of the files as they were made, as ``digest_of_file`` gives them; None if they are not known.
        """
        try:
            size = _size(content, files)
            if size > self.limit:
                return
            make_room(self.folder, size, self.limit)
            for number, path in enumerate(files):
                with partial_file(self.folder) as partial:
                    _put(path, partial)
                    os.replace(partial, self._path(key, number))
            digests = _digests(files) if digests is None else digests
            listed = [(path.name, digest) for path, digest in zip(files, digests, strict=True)]
            if [*map(file_state, files)] != [*made]:
                return
            line = json.dumps([listed, _digest(key, listed, content)]).encode() + b"\n"
            with partial_file(self.folder) as partial:
                partial.write_bytes(line + content)
                os.replace(partial, self._path(key))
        except OSError as error:
            _LOG.info("a value is not kept in '%s': %s", self.folder, error)

    def remove(self, key: str) -> None:
        """Remove a value and its files, if there is one."""
        for path in files_in(self.folder, key):
            with suppress(OSError):
                path.unlink()

    def _restored(self, key: str, files: Sequence[tuple[str, str]], places: Sequence[Path]) -> bool:
        """Put files where they are wanted, and compare them with what was written."""
        if len(places) != len(files):
            return False
        for number, place in enumerate(places):
            with opened(self._path(key, number)) as file:
                if not is_only_ours(file):
                    return False
            # A compilation that needs the room may remove them while this one goes on.
            _put(self._path(key, number), place)
            os.utime(self._path(key, number))
        return _digests(places) == [digest for _, digest in files]

    def _path(self, key: str, number: int | None = None) -> Path:
        return self.folder / f"{key}{'' if number is None else f'.{number}'}{SUFFIX}"


def file_state(path: Path) -> FileState:
    """What tells a file from another one that has its name later.

    Raises:
        OSError: if there is no file.
    """
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _size(content: bytes, files: Sequence[Path]) -> int:
    """The most bytes that a value and its files take."""
    return len(content) + _LONGEST_LINE + sum(path.stat().st_size for path in files)


def _put(source: Path, target: Path) -> None:
    """Give a file another name, or copy it to another disk; only the user may write it then."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
    target.chmod(0o600)


def _listed(line: bytes) -> tuple[list[tuple[str, str]], str]:
    """Names and hashes of files, and the hash of all."""
    files, digest = json.loads(line)
    return [(str(name), str(own)) for name, own in files], str(digest)


def _digests(paths: Sequence[Path]) -> list[str]:
    with ThreadPoolExecutor(max(1, len(paths))) as threads:
        return [*threads.map(digest_of_file, paths)]


def digest_of_file(path: Path) -> str:
    """The SHA-256 of a file's content.

    Raises:
        OSError: if it cannot be read.
    """
    hashed = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        # Few large blocks: another thread may keep the interpreter for some milliseconds after each.
        while block := file.read(_AT_ONCE):
            hashed.update(block)
    return hashed.hexdigest()


def _digest(key: str, files: Sequence[tuple[str, str]], content: bytes) -> str:
    hashed = hashlib.sha256(f"{key}\n{json.dumps(files)}\n".encode())
    hashed.update(content)
    return hashed.hexdigest()
