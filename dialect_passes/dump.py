"""Write the module after each pass, in readable form."""

from __future__ import annotations

import io
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from sartor.codegen.mlir.iree_compiler import ir
from sartor.errors import UsageError
from sartor.publishing import written

_SMALL_ELEMENTS = 16
_NAME = re.compile(r"\d{2,}-.*\.mlir")


def is_dumped(path: Path, directory: Path) -> bool:
    """Whether a stage may be written to a file, by its own name or by that of a link in the directory.

    Raises:
        UsageError: if the directory cannot be read.
    """
    # Links may loop, which ``Path.resolve`` takes for an error of the program.
    place, real = os.path.realpath(directory), os.path.realpath(path)
    try:
        links = [each for each in directory.iterdir() if _NAME.fullmatch(each.name)]
    except OSError as error:
        raise UsageError(f"'{directory}' cannot be read: {error.strerror}") from None
    folder, name = os.path.split(real)
    return (folder == place and _NAME.fullmatch(name) is not None) or any(
        os.path.realpath(each) == real for each in links
    )


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
        path = self.directory / f"{self.count:02}-{name}.mlir"
        self.count += 1
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"'{self.directory}' cannot be made: {error.strerror}") from None
        with written(path) as new:
            new.write_text(text, encoding="utf-8")


def _readable(module: ir.Module) -> str:
    return str(module.operation.get_asm(large_elements_limit=_SMALL_ELEMENTS, enable_debug_info=True))


def bytecode(module: ir.Module) -> bytes:
    """The module with its locations, for another process."""
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()
