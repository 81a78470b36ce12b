"""Imported models of earlier compilations: the same file, imported by the same code in the same way, is not again.

What is kept for a file is found by its content, and by all else that importing depends on. A model that something was
said about is not kept, as it would have to be said again, nor one with data in other files, nor one for which there
was no time to look at all samples, as later compilations may have more.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from threading import Thread

from sartor.codegen.source_digest import package_digest
from sartor.frontend.imported_model import ImportedModel
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
        """The model as it was imported before; else it is now, and kept for later, which goes on beside."""
        before = self._state()
        if before is not None and self.kept.may_have(self._beginning(before)) and (found := self._found()):
            return found
        with _Listener() as listener:
            made = imported()
        if before is not None and not listener.has_heard and _is_whole(made, self.directory):
            # Importing the model in another way into the same directory replaces them.
            states = [*map(file_state, _files(made))]
            Thread(target=self._keep, args=(made, before, states), daemon=True).start()
        return made

    def _found(self) -> ImportedModel | None:
        content = None
        # What cannot be read is told by who imports it.
        with suppress(OSError):
            if (before := self._state()) is not None:
                content = self.kept.restore(self._key(before), self.directory)
        if content is None:
            return None
        model: ImportedModel = pickle.loads(content)
        return replace(
            model,
            path=self.model,
            weights=_moved(model.weights, self.directory),
            prepared=self.directory / Path(str(model.prepared)).name,
        )

    def _keep(self, model: ImportedModel, before: tuple[int, ...], made: Sequence[FileState]) -> None:
        try:
            key = self._key(before)
        except OSError as error:
            _LOG.info("an imported model is not kept, as its file cannot be read: %s", error)
            return
        # Else it is not known that this is what was imported.
        if self._state() == before:
            content = pickle.dumps(replace(model, path=Path()), pickle.HIGHEST_PROTOCOL)
            self.kept.keep(key, content, _files(model), made)

    def _state(self) -> tuple[int, ...] | None:
        """What changes with the model's file; None if it was written so lately that this may not show."""
        with suppress(OSError):
            status = self.model.stat()
            if abs(time.time() - status.st_ctime) > _SETTLED_SECONDS:
                return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev
        return None

    def _beginning(self, state: tuple[int, ...]) -> str:
        """Of the key: it tells without reading the file that there is nothing."""
        return hashlib.sha256(f"{state[0]} ".encode() + self.settings).hexdigest()[:16]

    def _key(self, state: tuple[int, ...]) -> str:
        # Of another version Python may lack classes by the names that a value has them by, as 3.12 does those of 3.13.
        python = f"python {platform.python_version()}"
        versions = [python, *(f"{name} {version(name)}" for name in _PACKAGES), runtime_key(), reference_version()]
        parts = [digest_of_file(self.model), package_digest(), host().key, *versions]
        hashed = hashlib.sha256("\n".join(parts).encode())
        hashed.update(self.settings)
        return f"{self._beginning(state)}{hashed.hexdigest()}"


def _files(model: ImportedModel) -> list[Path]:
    """The two files of a whole model."""
    return [path for path in (getattr(model.weights, "path", None), model.prepared) if isinstance(path, Path)]


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


class _Listener(logging.Handler):
    """Notes whether anything was said that the user should hear."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.has_heard = False

    def emit(self, record: logging.LogRecord) -> None:
        self.has_heard = True

    def __enter__(self) -> _Listener:
        logging.getLogger("sartor").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("sartor").removeHandler(self)
