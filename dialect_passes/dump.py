"""Write the model before its import, and the module after each pass, in readable form."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from sartor.codegen.mlir.iree_compiler import ir
from sartor.errors import UsageError
from sartor.publishing import written

_SMALL_ELEMENTS = 16
_NAME = re.compile(r"\d{2,}-.*\.mlir|model-(?:loaded|prepared)\.onnx|model-rewrites\.txt")
_FOLDER = re.compile(r"plan-\d+|sizes-\d+(?:x\d+)*")


def folder_of_plan(directory: Path | None, number: int) -> Path | None:
    """Where the stages of one of several plans are written, whose files have equal names; None without a directory."""
    return directory / f"plan-{number}" if directory is not None else None


def folder_of_sizes(directory: Path | None, sizes: Iterable[int]) -> Path | None:
    """Where the stages of one of several imports are written, which differ in sizes; None without a directory."""
    return directory / f"sizes-{'x'.join(map(str, sizes))}" if directory is not None else None


def is_dumped(path: Path, directory: Path) -> bool:
    """Whether a stage may be written to a file, by its own name or by that of a link in the directory.

    Raises:
        UsageError: if the directory, or that of one of several plans or imports in it, cannot be read.
    """
    # Links may loop, which ``Path.resolve`` takes for an error of the program.
    place, real = os.path.realpath(directory), os.path.realpath(path)
    folder, name = os.path.split(real)
    parent, own = os.path.split(folder)
    is_inside = folder == place or (parent == place and _FOLDER.fullmatch(own) is not None)
    return (is_inside and _NAME.fullmatch(name) is not None) or any(
        os.path.realpath(path) == real for path in _named_like_stages(directory)
    )


def linked_stage(directory: Path) -> Path | None:
    """A link in the directory through which a stage would be written to a file elsewhere.

    Raises:
        UsageError: as ``is_dumped``.
    """
    return next((path for path in _named_like_stages(directory) if path.is_symlink()), None)


def _named_like_stages(directory: Path) -> list[Path]:
    """What has the name of a stage, in the directory or in that of one of several plans or imports.

    Raises:
        UsageError: as ``is_dumped``.
    """
    inside = _listed(directory)
    for path in [*inside]:
        if _FOLDER.fullmatch(path.name) and path.is_dir():
            inside += _listed(path)
    return [path for path in inside if _NAME.fullmatch(path.name)]


def _listed(directory: Path) -> list[Path]:
    """What a directory holds.

    Raises:
        UsageError: if it cannot be read.
    """
    try:
        return [*directory.iterdir()]
    except OSError as error:
        raise UsageError(f"'{directory}' cannot be read: {error.strerror}") from None


@dataclass
class Dumper:
    """Writes numbered files; does nothing without a directory."""

    directory: Path | None
    count: int = field(default=0)

    def write(self, name: str, module: ir.Module | str) -> None:
        """Write one stage.

        Raises:
            UsageError: if the directory cannot be written.
        """
        if self.directory is None:
            return
        text = module if isinstance(module, str) else _readable(module)
        self._write(f"{self.count:02}-{name}.mlir", [text.encode()])
        self.count += 1

    def write_model(self, name: str, pieces: Callable[[], Iterable[bytes | memoryview]]) -> None:
        """Write what is known of the model before its import: ``model-NAME``, which ``pieces`` gives.

        Raises:
            UsageError: as ``write``.
        """
        if self.directory is not None:
            self._write(f"model-{name}", pieces())

    def _write(self, name: str, pieces: Iterable[bytes | memoryview]) -> None:
        assert self.directory is not None
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"'{self.directory}' cannot be made: {error.strerror}") from None
        with written(self.directory / name) as new, new.open("wb") as file:
            file.writelines(pieces)


def _readable(module: ir.Module) -> str:
    return str(module.operation.get_asm(large_elements_limit=_SMALL_ELEMENTS, enable_debug_info=True))


def bytecode(module: ir.Module) -> bytes:
    """The module with its locations, for another process."""
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()
