"""Kernels of a few ops, compiled into one module and run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.executable import Kernel, Write
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.linking.bench_module import compile_bench
from sartor.codegen.linking.names import EXPORT_PREFIX
from sartor.codegen.linking.pieces import Piece
from sartor.codegen.mlir.dispatches import lower
from sartor.codegen.mlir.iree_compiler import arith, ir, vector
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.device_array import from_view, upload
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array, TensorSpec
from sartor.runtime.module import open_module

HOST = Target.create("cpu")
LANES = 4


@dataclass(frozen=True)
class SmallKernel:
    """A kernel, and what it is run on.

    Attributes:
        write: emits the code of a workgroup.
        inputs: of one dimension each.
        size: elements of the result.
        groups: workgroups in each dimension.
        dtype: of the result.
        lanes: elements of a vector.
        target: what it is compiled for; all kernels of a module are for the same.
        tied: which input the result is written over; None where it has memory of its own.
    """

    write: Write
    inputs: Sequence[Array]
    size: int
    groups: tuple[int, int, int] = (1, 1, 1)
    dtype: str = "f32"
    lanes: int = LANES
    target: Target = HOST
    tied: int | None = None

    @property
    def kernel(self) -> Kernel:
        reads = tuple(TensorType.of(each.shape, each.dtype) for each in self.inputs)
        return Kernel("small", reads, (TensorType((self.size,), self.dtype),), self.groups, self.lanes, self.tied)

    @property
    def implementation(self) -> Implementation:
        kernel = self.kernel
        names = [f"%a{index}" for index in range(len(kernel.reads))]
        arguments = ", ".join(f"{name}: {each}" for name, each in zip(names, kernel.reads, strict=True))
        (result,) = kernel.results
        head = f"util.func public @layer({arguments}) -> {result} {{"
        body = "\n".join([head, f"  {kernel.dispatch(names)}", f"  util.return %r : {result}", "}"])
        inputs, outputs = (
            tuple(Schema.plain(each, "cpu") for each in types) for types in (kernel.reads, kernel.results)
        )
        return Implementation(body, tuple(inputs), tuple(outputs), (), kernel=_Source(self))


@dataclass(frozen=True)
class _Source:
    small: SmallKernel
    identity: str = "small"

    def executables(self) -> tuple[str, ...]:
        return (self.small.kernel.executable(self.small.target, self.small.write),)


def run_kernels(kernels: Mapping[str, SmallKernel]) -> dict[str, Array]:
    """The result of each kernel."""
    (target,) = {each.target for each in kernels.values()}
    implementations = {name: each.implementation for name, each in kernels.items()}
    pieces = {name: Piece(name, implementations[name], code) for name, code in lower(implementations, target).items()}
    signatures = {name: (list(each.kernel.reads), list(each.kernel.results)) for name, each in kernels.items()}
    module = open_module(compile_bench(target, pieces, signatures, repeated=()))
    program = Program(module.native, "small kernels", open_device("cpu", 1), {})
    return {name: _run(program, name, each) for name, each in kernels.items()}


def _run(program: Program, name: str, small: SmallKernel) -> Array:
    views = [upload(each, program.device).view for each in small.inputs]
    (result,) = program.invoke(EXPORT_PREFIX + name, views)
    spec = TensorSpec("result", TensorType((), small.dtype).numpy_dtype.name, (small.size,))
    return from_view(result, program.device, spec).to_host().copy()


def number(asm: Assembler, index: Index) -> ir.Value:
    """A vector that repeats an index as a float."""
    f32 = ir.F32Type.get()
    wide = arith.index_cast(ir.IntegerType.get_signless(64), asm.value(index))
    return vector.broadcast(asm.vector_type(f32), arith.sitofp(f32, wide))


def floats(*values: float) -> Array:
    """An array of one dimension."""
    return np.array(values, np.float32)
