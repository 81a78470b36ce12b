"""Compiles the variants of a layer for a GPU of NVIDIA, assembles them, and says what is wrong with each kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.machines.cuda import ARCHITECTURES
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Variant, variants_of
from sartor.codegen.ir.variants.traits import DescribedVariant
from sartor.codegen.kernels.tensor_cores.split_sum import PARTS
from sartor.codegen.linking.bench_module import compile_bench, physical_signature
from sartor.codegen.linking.pieces import Piece
from sartor.codegen.mlir.dispatches import lower
from sartor.codegen.routine_registry import described
from tools.cuda.assembler.ptx import Assembled, assemble, instructions, kernels_of, ptx_of, shared_bytes
from tools.cuda.assembler.record import Kernel, cuda_routines

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


def check(layer: Layer, architecture: str, routine: str = "") -> list[Kernel]:
    """The kernels of all variants of a layer, assembled.

    Args:
        layer: of a network that was imported for CUDA.
        architecture: such as ``sm_80``.
        routine: only routines whose name has this in it.

    Raises:
        FileNotFoundError, ValueError: as ``assemble``.
    """
    return list(_kernels(layer, architecture, routine))


def _kernels(layer: Layer, architecture: str, routine: str) -> Iterator[Kernel]:
    target = Target.create("cuda", architecture)
    variants = _variants(layer, target, routine)
    if not variants:
        return
    codes = lower({name: variant.implementation for name, variant in variants.items()}, target)
    task = layer.task
    signatures = {
        name: physical_signature(variant.implementation, task.inputs, task.weights, task.results)
        for name, variant in variants.items()
    }
    pieces = {name: Piece(name, variants[name].implementation, code) for name, code in codes.items()}
    texts = ptx_of(compile_bench(target, pieces, signatures, repeated=()))
    bodies = {name: body for text in texts for name, body in kernels_of(text).items()}
    for each in (one for text in texts for one in assemble(text, architecture)):
        own = each.name.partition("_")[0]
        shared, descriptor = shared_bytes(codes[own].text), variants[own].descriptor
        beside = [name for name in bodies if name.partition("_")[0] == own]
        fault = _excess(each, shared, architecture) or _missing(descriptor, each.name, bodies[each.name], beside)
        yield Kernel(f"{descriptor} {each.name}", each, fault)


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
    routines = [cuda_routine for cuda_routine in cuda_routines() if routine in cuda_routine.name]
    found = [one for each in routines for one in variants_of(each, layer.task, target)]
    return {f"v{index}": each for index, each in enumerate(each for each in found if isinstance(each, Variant))}
