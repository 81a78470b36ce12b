"""Imported models of earlier compilations: the same file, imported by the same code in the same way, is not again.

What is kept for a file is found by its content, and by all else that importing depends on. It is kept once the
compilation has made a right file of it. A model that something was said about is not kept, as it would have to be said
again, nor one with data in other files, nor one for which there was no time to look at all samples, as later
compilations may have more.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from sartor.codegen.source_digest import package_digest
from sartor.errors import RewriteError, WrongOutputsError
from sartor.frontend.imported_model import ImportedModel, Origin
from sartor.tuning.kept.heard_warnings import HeardWarnings
from sartor.tuning.kept.values import FileState, KeptValues, digest_of_file, file_state
from sartor.tuning.records.hardware import host
from sartor.tuning.records.measurement import reference_version, runtime_key
from sartor.tuning.workers.shared_arrays import StoredArrays

_LOG = logging.getLogger(__name__)
# Of a file that was written since, the time may not show that it was written once more.
_SETTLED_SECONDS = 2.0
_PACKAGES = ("ml_dtypes", "numpy", "onnx", "onnxslim", "protobuf")


@dataclass(frozen=True)
class KeptImport:
    """What is kept of the import of a model.

    Attributes:
        kept: where.
        model: the ONNX file.
        directory: where the compilation has its large files.
        settings: all that importing depends on besides the model, pickled.
    """

    kept: KeptValues
    model: Path
    directory: Path
    settings: bytes

    def found_or(self, imported: Callable[[], ImportedModel]) -> ImportedModel:
        """The model as it was imported before, or else now, with its origin."""
        before = _state(self.model)
        if before is not None and self.kept.may_have(_beginning(before, self.settings)) and (earlier := self._found()):
            return earlier
        with HeardWarnings() as warnings:
            made = imported()
        if before is None or warnings.has_heard or not _is_whole(made, self.directory):
            return made
        # Importing the model in another way into the same directory replaces them.
        files, digests = _states(made), ("", made.sha256)
        content = pickle.dumps(replace(made, path=Path()), pickle.HIGHEST_PROTOCOL)
        return replace(made, origin=Origin(self.settings, before, content=content, files=files, digests=digests))

    def _found(self) -> ImportedModel | None:
        before, content = _state(self.model), None
        # What cannot be read is told by who imports it.
        with suppress(OSError):
            if before is not None:
                key = _key(self.model, before, self.settings)
                content = self.kept.restore(key, self.directory)
        if before is None or content is None:
            return None
        weights_sha256, model = pickle.loads(content)
        kept: ImportedModel = pickle.loads(model)
        restored = replace(
            kept,
            path=self.model,
            weights=_moved(kept.weights, self.directory),
            prepared=self.directory / Path(str(kept.prepared)).name,
        )
        files, digests = _states(restored), (weights_sha256, kept.sha256)
        return replace(restored, origin=Origin(self.settings, before, key, files=files, digests=digests))


@dataclass(frozen=True)
class HashedImport:
    """An imported model with what keeping it takes time for.

    Attributes:
        key: under which it is, or will be, kept.
        digests: of its files; none if it is kept already.
    """

    key: str
    digests: tuple[str, ...] = ()


def hashed_import(model: ImportedModel, kept: KeptValues, digest_of: Callable[[Path], str]) -> HashedImport | None:
    """What keeping a model takes time for; None if it is not to be kept.

    Args:
        model: the model, or another one of the same origin.
        kept: where it will be.
        digest_of: the hash of a file, which may be known.
    """
    origin = model.origin
    if origin is None or origin.found:
        return None if origin is None else HashedImport(origin.found)
    if not kept.fits([path for path, _ in origin.files]):
        return None
    try:
        key = _key(model.path, origin.state, origin.settings)
        digests = tuple(digest_of(path) for path, _ in origin.files)
    except OSError as error:
        _LOG.info("an imported model is not kept, as a file cannot be read: %s", error)
        return None
    # Else it is not known that this is what was imported.
    return HashedImport(key, digests) if _state(model.path) == origin.state else None


def keep_import(model: ImportedModel, kept: KeptValues, hashed: HashedImport) -> None:
    """Keep a model, unless it was, of which a right file was made."""
    origin = model.origin
    if origin is not None and hashed.digests:
        content = pickle.dumps((hashed.digests[0], origin.content), pickle.HIGHEST_PROTOCOL)
        paths, states = zip(*origin.files, strict=True)
        kept.keep(hashed.key, content, paths, states, hashed.digests)


@contextmanager
def forgotten_if_wrong(models: Sequence[ImportedModel], kept: KeptValues) -> Iterator[None]:
    """Remove what was kept of models if no right file can be made of them: it may be what is wrong."""
    try:
        yield
    except (WrongOutputsError, RewriteError):
        keys = {model.origin.found for model in models if model.origin is not None and model.origin.found}
        if keys:
            _LOG.warning("the model was imported by an earlier compilation; the next one imports it anew")
        for key in keys:
            kept.remove(key)
        raise


def _state(model: Path) -> tuple[int, ...] | None:
    """What changes with a model's file; None if it was written so lately that this may not show."""
    with suppress(OSError):
        status = model.stat()
        if abs(time.time() - status.st_ctime) > _SETTLED_SECONDS:
            return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev
    return None


def _beginning(state: tuple[int, ...], settings: bytes) -> str:
    """Of a key: it tells without reading the file that there is nothing."""
    return hashlib.sha256(f"{state[0]} ".encode() + settings).hexdigest()[:16]


def _key(model: Path, state: tuple[int, ...], settings: bytes) -> str:
    # Of another version Python may lack classes by the names that a value has them by, as 3.12 does those of 3.13.
    python = f"python {platform.python_version()}"
    versions = [python, *(f"{name} {version(name)}" for name in _PACKAGES), runtime_key(), reference_version()]
    parts = [digest_of_file(model), package_digest(), host().key, *versions]
    hashed = hashlib.sha256("\n".join(parts).encode())
    hashed.update(settings)
    return f"{_beginning(state, settings)}{hashed.hexdigest()}"


def _states(model: ImportedModel) -> tuple[tuple[Path, FileState], ...]:
    """The two files of a whole model, that of its weights first, and what they are."""
    paths = getattr(model.weights, "path", None), model.prepared
    return tuple((path, file_state(path)) for path in paths if isinstance(path, Path))


def _is_whole(model: ImportedModel, directory: Path) -> bool:
    """Whether a model needs no files but the two that a value is kept with, and more time would not change it."""
    weights, prepared = model.weights, model.prepared
    is_stored = isinstance(weights, StoredArrays) and {*weights.paths} <= {weights.path}
    is_complete = not (model.external or model.is_hurried)
    return is_stored and isinstance(prepared, Path) and prepared.parent == directory and is_complete


def _moved(weights: object, directory: Path) -> StoredArrays:
    """Weights in the file of that name in a directory.

    Raises:
        TypeError: if they are in no file.
    """
    if not isinstance(weights, StoredArrays):
        raise TypeError(f"weights are kept as {type(weights).__name__}")
    return weights.at(directory / weights.path.name)
