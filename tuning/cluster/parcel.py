"""Jobs and their results as bytes that travel between machines: files that they name travel with them.

Arguments of jobs name files by paths. On the way a path of a file becomes the digest of its content, and on the other
machine the path of a file with that content there. So a file is sent to a machine once, however many jobs name it.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import pickle
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

from sartor.tuning.workers.entry_points import resolved
from sartor.tuning.workers.process import JobResult
from sartor.workspace import partial_file

_FILE, _FOLDER, _PATH = "file", "folder", "path"


@dataclass(frozen=True)
class Packed:
    """Something as bytes.

    Attributes:
        payload: a pickle in which files are digests.
        names: of the files, by digest.
        contents: of those files that travel with it, by digest; the others are there already.
    """

    payload: bytes
    names: Mapping[str, str] = field(default_factory=dict)
    contents: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Parcel:
    """A job on its way to a worker.

    Attributes:
        function: as for ``WorkerPool.map_unordered``.
        arguments: its keyword arguments.
        timeout: seconds that it may take.
        is_fresh: whether a new process runs it.
    """

    function: str
    arguments: Packed
    timeout: float
    is_fresh: bool = False


@dataclass(frozen=True)
class Answer:
    """The end of a job on its way back.

    Attributes:
        result: without its value.
        value: packed.
        missing: digests of files that the worker needs and has no more; the job did not run then.
    """

    result: JobResult
    value: Packed
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unreadable:
    """A result in place of a job's: the worker lacks something that is needed to read the job."""

    reason: str


class _Packer(pickle.Pickler):
    """Pickles, and collects the files that are named."""

    def __init__(self, buffer: io.BytesIO) -> None:
        super().__init__(buffer, pickle.HIGHEST_PROTOCOL)
        self.files: dict[str, Path] = {}

    def persistent_id(self, obj: object) -> tuple[str, ...] | None:
        if not isinstance(obj, Path):
            return None
        if obj.is_file():
            digest = digest_of(obj)
            self.files[digest] = obj
            return _FILE, digest
        # The other machine has a folder of its own for what a job writes.
        return (_FOLDER,) if obj.is_dir() else (_PATH, str(obj))


class _Unpacker(pickle.Unpickler):
    """Restores paths, of files that have arrived and of a folder."""

    def __init__(self, payload: bytes, files: Mapping[str, Path], folder: Path) -> None:
        super().__init__(io.BytesIO(payload))
        self._files = files
        self._folder = folder

    def persistent_load(self, pid: tuple[str, ...]) -> PurePath:
        kind, *rest = pid
        if kind == _FILE:
            return self._files[rest[0]]
        return self._folder if kind == _FOLDER else Path(rest[0])


def pack(value: object) -> tuple[Packed, dict[str, Path]]:
    """Something packed without its files, and these by digest."""
    buffer = io.BytesIO()
    packer = _Packer(buffer)
    packer.dump(value)
    return Packed(buffer.getvalue(), {key: path.name for key, path in packer.files.items()}), packer.files


def with_contents(packed: Packed, files: Mapping[str, Path], known: Collection[str] = ()) -> Packed:
    """The same with the files' contents, but for those that the other end knows."""
    return replace(packed, contents={key: path.read_bytes() for key, path in files.items() if key not in known})


def unpack(packed: Packed, store: FileStore, folder: Path) -> Any:
    """What was packed; its files are in ``store`` afterwards.

    Raises:
        KeyError: if a file is neither there nor in the parcel.
    """
    store.put(packed)
    return _Unpacker(packed.payload, {key: store.path(key, name) for key, name in packed.names.items()}, folder).load()


@dataclass(frozen=True)
class FileStore:
    """Files that have arrived, by digest, in a folder that somebody else removes.

    Attributes:
        folder: exists.
        most: bytes that it holds at most; then it is emptied before a new file is written. A file that travels with a
            job is kept whatever its size.
    """

    folder: Path
    most: int = 4 << 30

    def lacks(self, packed: Packed) -> tuple[str, ...]:
        """Digests of files that a parcel names and that are neither there nor in it."""
        there = packed.contents.keys()
        return tuple(
            key for key, name in packed.names.items() if key not in there and not self._path(key, name).exists()
        )

    def make_room(self, packed: Packed) -> None:
        """Remove all files if those of a parcel would be too many; only while no job runs that needs them."""
        held = [path for path in self.folder.rglob("*") if path.is_file()]
        coming = sum(map(len, packed.contents.values()))
        if held and sum(file.stat().st_size for file in held) + coming > self.most:
            for file in held:
                file.unlink()

    def put(self, packed: Packed) -> None:
        """Write the files that travel with something.

        Jobs that run may have mapped a file of the same digest: it stays as it is, or another takes its name.
        """
        for key, content in packed.contents.items():
            path = self._path(key, packed.names[key])
            if path.is_file() and path.stat().st_size == len(content):
                continue
            path.parent.mkdir(exist_ok=True)
            with partial_file(path.parent) as new:
                new.write_bytes(content)
                os.replace(new, path)

    def path(self, key: str, name: str) -> Path:
        """The file of a digest.

        Raises:
            KeyError: if it is not there.
        """
        file = self._path(key, name)
        if not file.exists():
            raise KeyError(key)
        return file

    def _path(self, key: str, name: str) -> Path:
        # Both come from the other end: neither may lead out of the folder.
        return self.folder / PurePath(key).name / PurePath(name).name


def digest_of(path: Path) -> str:
    """The digest of a file's content."""
    facts = path.stat()
    return _digest(path, facts.st_mtime_ns, facts.st_size)


@functools.lru_cache(maxsize=4096)
def _digest(path: Path, modified: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def run_packed(function: str, packed: Packed, store: FileStore, folder: Path) -> tuple[Packed, dict[str, Path]]:
    """Worker side: call a function with packed arguments; returns its result packed, and the files in it.

    Unpacking imports what the arguments are of, which must happen in a process that a failure may end.

    Args:
        function: ``package.module:name``.
        packed: its keyword arguments, whose files are in ``store``.
        store: files that have arrived.
        folder: for files that the function writes.
    """
    try:
        arguments, called = unpack(packed, store, folder), resolved(function)
    except (AttributeError, ImportError) as error:
        return pack(Unreadable(str(error)))
    return pack(called(**arguments))
