"""Compiles every variant of the CUDA routines for typical layers and all architectures, and assembles it.

``python -m tools.cuda`` prints what spills, exceeds a limit or lacks an instruction, and fails if anything does. With
``-o`` it goes on where it was interrupted.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import onnx

from benchmarks.record.circumstances import circumstances
from benchmarks.record.computed import Computed
from benchmarks.record.results import RESULTS
from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.machines.cuda import ARCHITECTURES
from sartor.codegen.ir.target import Target
from sartor.frontend.import_job import run_import
from sartor.frontend.imported_model import ImportedModel
from tools.cuda.assembler.kernel_check import check
from tools.cuda.assembler.models import MODELS
from tools.cuda.assembler.ptx import assembler_version
from tools.cuda.assembler.record import Kernel, Record, key_of

_UNFINISHED = 75
_TABLE = "cuda-kernels"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; the exit code says whether all kernels are as they should be."""
    parser = argparse.ArgumentParser(prog="python -m tools.cuda", description=__doc__)
    parser.add_argument("--arch", action="append", choices=list(ARCHITECTURES), help="architecture; repeatable")
    parser.add_argument("--model", action="append", choices=list(MODELS), help="layers; repeatable")
    parser.add_argument("--routine", default="", help="only routines whose name has this in it")
    parser.add_argument("-o", type=Path, help="JSON file for what the assembler says of each kernel, kept as it goes")
    parser.add_argument("--seconds", type=float, default=math.inf, help="time after which no layer is begun")
    parser.add_argument("--jobs", type=_positive, default=1, help="layers that are compiled at the same time")
    parser.add_argument("--record", action="store_true", help="record the table that docs/records/cuda.md shows")
    options = parser.parse_args(arguments)
    if options.record and (options.arch or options.model or options.routine):
        parser.error("--record is for all architectures, layers and routines")
    models, architectures = options.model or [*MODELS], options.arch or [*ARCHITECTURES]
    now = circumstances(Path.cwd(), "tools.cuda") if options.record else None
    record = Record.at(options.o)
    work = _Work(record, options.routine, time.monotonic() + options.seconds)
    if not work.done(architectures, models, options.jobs):
        print(f"not finished: {record.summary('')}")
        return _UNFINISHED
    for architecture in architectures:
        print(f"{architecture}: {record.summary(f'{architecture} ')}")
    print(record.summary(""))
    if now is not None:
        source = f"the variants of all routines for typical layers, assembled by {assembler_version()}"
        print(Computed(_TABLE, now, source, *record.table(architectures, models)).save(RESULTS))
    return int(any(record.faults("")))


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


@dataclass(frozen=True)
class _Work:
    """Layers to check, as far as they are not in the record.

    Attributes:
        record: where kernels are noted.
        routine: only routines whose name has this in it.
        end: the time after which no layer is begun.
    """

    record: Record
    routine: str
    end: float

    def done(self, architectures: Sequence[str], models: Sequence[str], jobs: int) -> bool:
        """Check all layers, in ``jobs`` processes; returns whether all were begun in time."""
        left = [each for each in self._keys(architectures, models) if not self.record.has(each[0])]
        if jobs == 1:
            for key, layer, architecture in left:
                if time.monotonic() > self.end:
                    return False
                self._note(key, check(layer, architecture, self.routine))
            return True
        with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
            return self._done_beside(pool, left, jobs)

    def _done_beside(self, pool: Executor, left: Iterable[tuple[str, Layer, str]], jobs: int) -> bool:
        """As ``done``; only as many layers as there are processes are begun before others end."""
        running: dict[Future[list[Kernel]], str] = {}
        in_time = True
        for key, layer, architecture in left:
            if len(running) == jobs:
                self._note_ended(running)
            if time.monotonic() > self.end:
                in_time = False
                break
            running[pool.submit(check, layer, architecture, self.routine)] = key
        while running:
            self._note_ended(running)
        return in_time

    def _note_ended(self, running: dict[Future[list[Kernel]], str]) -> None:
        """Wait for a layer, and note all that ended."""
        for each in wait(running, return_when=FIRST_COMPLETED).done:
            self._note(running.pop(each), each.result())

    def _note(self, key: str, kernels: Sequence[Kernel]) -> None:
        self.record.add(key, kernels)
        for fault in self.record.faults(key):
            print(f"{key}: {fault}", flush=True)

    def _keys(self, architectures: Sequence[str], models: Sequence[str]) -> Iterator[tuple[str, Layer, str]]:
        """All layers with their keys in the record and their architectures."""
        layers = {name: [*_layers(name)] for name in models}
        for architecture in architectures:
            for name in models:
                for layer in layers[name]:
                    yield key_of(architecture, name, layer.name, self.routine), layer, architecture


def _layers(name: str) -> Iterator[Layer]:
    """The layers of a model, one of each task."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.onnx"
        onnx.save(MODELS[name](), path)
        imported = run_import(path, {}, None, target=Target.create("cuda", "sm_80"))
    if not isinstance(imported, ImportedModel):
        raise ValueError(f"{name} cannot be imported: {imported}")
    seen = set()
    for layer in (*imported.graph.layers, *(fusion.layer for fusion in imported.graph.fusions)):
        if layer.task.key not in seen:
            seen.add(layer.task.key)
            yield layer


if __name__ == "__main__":
    sys.exit(main())
