"""The code of a kernel followed on plain numbers: what every workgroup reads and writes, without compiling it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import cast

import numpy as np

from sartor.codegen.iree_compiler import ir, shared_context
from sartor.codegen.kernels.assembler import Assembler, Body, Condition, Index
from sartor.codegen.kernels.kernel_layer import KernelLayer
from sartor.runtime.signature import Array

Group = tuple[int, int, int]


class Trace:
    """How often a workgroup touched each element of each buffer.

    Attributes:
        reads: by buffer.
        writes: by buffer.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.reads = [np.zeros(size, np.int64) for size in sizes]
        self.writes = [np.zeros(size, np.int64) for size in sizes]

    def touch(self, buffers: Sequence[Array], memory: ir.Value, offset: Index, count: int) -> None:
        buffer = buffers[cast(int, memory)]
        assert isinstance(offset, int)
        assert 0 <= offset <= offset + count <= len(buffer), f"{offset} + {count} of {len(buffer)}"
        buffer[offset : offset + count] += 1


class _Tracer(Assembler):
    """Folds everything: loops run here, memory is a number, and every vector is the same one."""

    def __init__(self, entry: ir.Block, lanes: int, trace: Trace) -> None:
        super().__init__(entry, lanes)
        self._trace = trace
        self._some = self.splat(ir.FloatAttr.get(ir.F32Type.get(), 1.0))

    def load(self, memory: ir.Value, offset: Index, count: int, present: Condition = True) -> ir.Value:
        assert isinstance(present, bool)
        if present:
            self._trace.touch(self._trace.reads, memory, offset, count)
        return self._some

    def broadcast(self, memory: ir.Value, offset: Index) -> ir.Value:
        return self.load(memory, offset, 1)

    def store(self, stored: ir.Value, memory: ir.Value, offset: Index, count: int) -> None:
        self._trace.touch(self._trace.writes, memory, offset, count)

    def prefetch(self, memory: ir.Value, offset: Index) -> None:
        assert isinstance(offset, int)

    def loop(self, lower: Index, upper: Index, step: int, carried: Sequence[ir.Value], body: Body) -> list[ir.Value]:
        assert isinstance(lower, int)
        assert isinstance(upper, int)
        values = list(carried)
        for index in range(lower, upper, step):
            values = body(index, values)
        return values


def traces(layer: KernelLayer) -> Iterator[tuple[Group, Trace]]:
    """What each workgroup of a kernel touches."""
    kernel = layer.kernel
    sizes = [each.elements for each in (*kernel.reads, *kernel.results)]
    x, y, z = map(range, kernel.groups)
    for group in product(x, y, z):
        trace = Trace(sizes)
        with shared_context() as context, ir.Location.unknown(context):
            module = ir.Module.parse("func.func @kernel() { return }")
            block = module.body.operations[0].regions[0].blocks[0]
            with ir.InsertionPoint(block.operations[0]):
                layer.code.write(_Tracer(block, kernel.lanes, trace), list(range(len(sizes))), group)
        yield group, trace
