"""Compiles every variant of the CUDA routines for typical layers and all architectures, and assembles it.

``python -m tools.cuda`` prints what spills, exceeds a limit or lacks an instruction, and fails if anything does. With
``-o`` it goes on where it was interrupted.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from sartor.codegen.ir.variants.routine import Variant, variants_of
from sartor.codegen.ir.variants.traits import DescribedVariant
from sartor.codegen.kernels.tensor_cores.split_sum import PARTS
from sartor.codegen.linking.bench_module import compile_bench, physical_signature
from sartor.codegen.linking.stitching import Piece
from sartor.codegen.mlir.dispatches import lower
from sartor.codegen.routine_registry import described
from sartor.frontend.import_job import run_import
from sartor.frontend.imported_model import ImportedModel
from tools.cuda.models import MODELS
from tools.cuda.ptx import Assembled, assemble, assembler_version, instructions, kernels_of, ptx_of, shared_bytes
from tools.cuda.record import Kernel, Record, cuda_routines

_UNFINISHED = 75
_TABLE = "cuda-kernels"
# Instructions by the beginnings of their names; what only waits for copies begins with cp.async too.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "mma.sync": ("mma.sync",),
    "cp.async": ("cp.async.ca", "cp.async.cg"),
    "ldmatrix.sync": ("ldmatrix.sync",),
    "ld.shared": ("ld.shared",),
    "fma": ("fma.rn.f32",),
    "shfl.sync": ("shfl.sync",),
}
_MATRICES = "mma.sync", "cp.async", "ldmatrix.sync"
_OF_TENSOR_CORES = frozenset({"implicit", "implicit_to_f32", "attention", "separable_product"})
_OF_OTHERS: Mapping[str, tuple[str, ...]] = {"warp_row": ("shfl.sync",)}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; the exit code says whether all kernels are as they should be."""
    parser = argparse.ArgumentParser(prog="python -m tools.cuda", description=__doc__)
    parser.add_argument("--arch", action="append", choices=list(ARCHITECTURES), help="architecture; repeatable")
    parser.add_argument("--model", action="append", choices=list(MODELS), help="layers; repeatable")
    parser.add_argument("--routine", default="", help="only routines whose name has this in it")
    parser.add_argument("-o", type=Path, help="JSON file for what the assembler says of each kernel, kept as it goes")
    parser.add_argument("--seconds", type=float, default=math.inf, help="time after which no layer is begun")
    parser.add_argument("--jobs", type=int, default=1, help="layers that are compiled at the same time")
    parser.add_argument("--record", action="store_true", help="record the table that docs/cuda.md shows")
    options = parser.parse_args(arguments)
    models, architectures = options.model or [*MODELS], options.arch or [*ARCHITECTURES]
    now = circumstances(Path.cwd(), "tools.cuda") if options.record else None
    record = Record.at(options.o)
    work = _Work(record, options.routine, time.monotonic() + options.seconds)
    if not work.done(architectures, models, options.jobs):
        print(f"not finished: {record.summary('')}")
        return _UNFINISHED
    for each in architectures:
        print(f"{each}: {record.summary(f'{each} ')}")
    print(record.summary(""))
    if now is not None:
        source = f"the variants of all routines for typical layers, assembled by {assembler_version()}"
        print(Computed(_TABLE, now, source, *record.table(architectures, models)).save(RESULTS))
    return int(any(record.faults("")))


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
                self._note(key, _kernels(layer, architecture, self.routine))
            return True
        with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
            return self._done_beside(pool, left, jobs)

    def _done_beside(self, pool: Executor, left: Iterable[tuple[str, Layer, str]], jobs: int) -> bool:
        """As ``done``; only as many layers as there are processes are begun before others end."""
        running: dict[Future[list[Kernel]], str] = {}
        in_time = True
        for key, layer, architecture in left:
            if time.monotonic() > self.end:
                in_time = False
                break
            if len(running) == jobs:
                self._note_ended(running)
            running[pool.submit(_kernels, layer, architecture, self.routine)] = key
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
                    yield f"{architecture} {name} {layer.name} {self.routine}".strip(), layer, architecture


def _kernels(layer: Layer, architecture: str, routine: str) -> list[Kernel]:
    return [Kernel(*each) for each in check(layer, architecture, routine)]


def check(layer: Layer, architecture: str, routine: str = "") -> Iterator[tuple[str, Assembled, str | None]]:
    """Each kernel of a layer's variants, what the assembler says of it, and what is wrong; None if nothing is."""
    target = Target.create("cuda", architecture)
    variants = _variants(layer, target, routine)
    if not variants:
        return
    codes = lower({name: each.implementation for name, each in variants.items()}, target)
    task = layer.task
    signatures = {
        name: physical_signature(each.implementation, task.inputs, task.weights, task.results)
        for name, each in variants.items()
    }
    pieces = {name: Piece(name, variants[name].implementation, code) for name, code in codes.items()}
    texts = ptx_of(compile_bench(target, pieces, signatures, repeated=()))
    bodies = {name: body for text in texts for name, body in kernels_of(text).items()}
    for each in (one for text in texts for one in assemble(text, architecture)):
        own = each.name.partition("_")[0]
        shared, descriptor = shared_bytes(codes[own].text), variants[own].descriptor
        beside = [name for name in bodies if name.partition("_")[0] == own]
        fault = _excess(each, shared, architecture) or _missing(descriptor, each.name, bodies[each.name], beside)
        yield f"{descriptor} {each.name}", each, fault


def _excess(kernel: Assembled, shared: int, architecture: str) -> str | None:
    """What a kernel has more of than a thread, a workgroup or a multiprocessor may have."""
    if kernel.spilled or kernel.stack:
        return f"{kernel.spilled} bytes spilled, {kernel.stack} bytes of stack, {kernel.registers} registers"
    if not kernel.fits:
        return f"{kernel.threads} threads of {kernel.registers} registers do not fit a multiprocessor"
    most = ARCHITECTURES[architecture].shared_bytes
    return f"{shared} bytes of shared memory, {most} are allowed" if shared > most else None


def _missing(descriptor: str, kernel: str, body: str, beside: Sequence[str]) -> str | None:
    """The instructions that one of a variant's kernels should have and has not; all of them are ``beside``."""
    expected = _expected(described(descriptor), kernel, beside)
    missing = [name for name in expected if not sum(instructions(body, *_NAMES[name]).values())]
    return f"no {', '.join(missing)}" if missing else None


def _expected(variant: DescribedVariant, kernel: str, beside: Sequence[str]) -> Sequence[str]:
    """Names of the instructions that make a kernel what it is."""
    routine = variant.routine.removeprefix("half_")
    if routine == "iree_implicit":
        # Results that tiles do not divide are padded by a kernel of IREE's that only copies.
        multiplying = [name for name in beside if re.search("matmul|conv", name)] or beside
        own = ("fma", "ld.shared") if variant.dtype == "f32" else ("mma.sync", "ld.shared")
        return own if kernel in multiplying else ()
    if routine in _OF_TENSOR_CORES:
        is_added = variant.parameters.get("split", 1) > 1 and not kernel.endswith(PARTS)
        return () if is_added else _MATRICES
    return _OF_OTHERS.get(routine, ())


def _variants(layer: Layer, target: Target, routine: str) -> Mapping[str, Variant]:
    routines = [each for each in cuda_routines() if routine in each.name]
    found = [one for each in routines for one in variants_of(each, layer.task, target)]
    return {f"v{index}": each for index, each in enumerate(each for each in found if isinstance(each, Variant))}


def _layers(name: str) -> Iterator[Layer]:
    """The layers of a model, one of each task."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.onnx"
        onnx.save(MODELS[name](), path)
        imported = run_import(path, {}, None, target=Target.create("cuda", "sm_80"))
    if not isinstance(imported, ImportedModel):
        raise ValueError(f"{name} cannot be imported: {imported}")
    seen = set()
    for layer in (*imported.graph.layers, *(each.layer for each in imported.graph.fusions)):
        if layer.task.key not in seen:
            seen.add(layer.task.key)
            yield layer


if __name__ == "__main__":
    sys.exit(main())
