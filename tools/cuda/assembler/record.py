"""What the assembler said of kernels, kept in a file while a long check goes on, so that it can be interrupted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path

from benchmarks.record.computed import Cell
from sartor.codegen.ir.variants.routine import Routine
from sartor.codegen.routines import ROUTINES
from sartor.codegen.routines.storing.half import Half
from sartor.codegen.source_digest import source_digest
from tools.cuda.assembler.ptx import Assembled, assembler, assembler_version

_FOLDER = "sartor.codegen.routines.cuda."


def cuda_routines() -> list[Routine]:
    """All routines for GPUs of NVIDIA."""
    return [routine for routine in ROUTINES if type(_kernel_of(routine)).__module__.startswith(_FOLDER)]


def _kernel_of(routine: Routine) -> object:
    """The routine itself, or the one that it applies to models in f16."""
    return routine.kernel if isinstance(routine, Half) else routine


@dataclass(frozen=True)
class Kernel:
    """A kernel that was assembled.

    Attributes:
        name: descriptor of its variant, and its own name.
        assembled: what the assembler says.
        fault: what is wrong with it; None if nothing is.
    """

    name: str
    assembled: Assembled
    fault: str | None


def key_of(architecture: str, model: str, layer: str, routine: str = "") -> str:
    """The key of a layer's kernels; ``routine`` is a part of the names of those that were looked at, if not all."""
    return f"{architecture} {model} {layer}" + (f" only {routine}" if routine else "")


@dataclass
class Record:
    """Kernels by the architecture, model and layer that they are for.

    Attributes:
        path: where the record is kept; None for nowhere.
        kernels: what was found so far.
    """

    path: Path | None = None
    kernels: dict[str, list[Kernel]] = field(default_factory=dict)

    @staticmethod
    def at(path: Path | None) -> Record:
        """The record of a file, empty if there is none, or if it is of other code."""
        found: dict[str, list[Kernel]] = {}
        if path is not None and path.exists():
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["sources"] == _sources():
                found = {
                    key: [_read_kernel(kernel) for kernel in kernels] for key, kernels in content["kernels"].items()
                }
        return Record(path, found)

    def has(self, key: str) -> bool:
        """Whether a layer's kernels were assembled."""
        return key in self.kernels

    def add(self, key: str, kernels: Sequence[Kernel]) -> None:
        """Note a layer's kernels, and write the file anew."""
        self.kernels[key] = list(kernels)
        if self.path is None:
            return
        content = {
            "sources": _sources(),
            "kernels": {name: [asdict(each) for each in found] for name, found in self.kernels.items()},
        }
        beside = self.path.with_suffix(".new")
        beside.write_text(json.dumps(content, indent=1), encoding="utf-8")
        beside.replace(self.path)

    def faults(self, prefix: str) -> list[str]:
        """What is wrong with the kernels whose keys begin so."""
        return [f"{each.name}: {each.fault}" for each in self._of(prefix) if each.fault is not None]

    def summary(self, prefix: str) -> str:
        """Numbers about the kernels whose keys begin so."""
        found = list(self._of(prefix))
        registers, spilled, faults = _worst(found)
        return f"{len(found)} kernels, at most {registers} registers, {spilled} with spills, {faults} faults"

    def table(
        self, architectures: Sequence[str], models: Sequence[str]
    ) -> tuple[tuple[str, ...], tuple[tuple[Cell, ...], ...]]:
        """Columns and rows: for each architecture the number of kernels by model, and the worst of them."""
        columns = ("target", *models, "all", "most registers of a thread", "with spills", "other faults")
        return columns, tuple(self._row(architecture, models) for architecture in architectures)

    def _row(self, architecture: str, models: Sequence[str]) -> tuple[Cell, ...]:
        by_model = [self._whole(key_of(architecture, name, "")) for name in models]
        found = [kernel for kernels in by_model for kernel in kernels]
        registers, spilled, faults = _worst(found)
        # What spills is a fault.
        return (architecture, *map(len, by_model), len(found), registers, spilled, faults - spilled)

    def _whole(self, prefix: str) -> list[Kernel]:
        """The kernels of all routines whose keys begin so, without what was looked at routine by routine."""
        chosen = [kernels for key, kernels in self.kernels.items() if key.startswith(prefix) and " only " not in key]
        return [kernel for kernels in chosen for kernel in kernels]

    def _of(self, prefix: str) -> Iterator[Kernel]:
        return (kernel for key, kernels in self.kernels.items() if key.startswith(prefix) for kernel in kernels)


def _worst(kernels: Sequence[Kernel]) -> tuple[int, int, int]:
    """The most registers of a thread, and the numbers of kernels with spills and with any fault."""
    registers = max((kernel.assembled.registers for kernel in kernels), default=0)
    spilled = sum(kernel.assembled.spilled > 0 for kernel in kernels)
    return registers, spilled, sum(kernel.fault is not None for kernel in kernels)


@cache
def _sources() -> str:
    """A digest of what the record depends on: routines for other devices may change meanwhile."""
    modules = (
        type(one).__module__ for cuda_routine in cuda_routines() for one in (cuda_routine, _kernel_of(cuda_routine))
    )
    own = (path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    tools = f"{assembler_version() if assembler() else None} {version('iree-base-compiler')}"
    parts = [source_digest(*dict.fromkeys(modules)).encode(), tools.encode(), *own]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _read_kernel(content: dict[str, object]) -> Kernel:
    given = content["assembled"]
    if not isinstance(given, dict):
        raise ValueError("the record is not one of kernels")
    fault = content["fault"]
    return Kernel(str(content["name"]), Assembled(**given), None if fault is None else str(fault))
