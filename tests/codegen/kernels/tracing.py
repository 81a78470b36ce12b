"""The code of a kernel followed on plain numbers: what every workgroup reads and writes, without compiling it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import cast

import numpy as np
import pytest

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.kernels.amx import emitter
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.control_flow import Body
from sartor.codegen.kernels.emit.index_arithmetic import Condition, Index
from sartor.codegen.kernels.isa.amx import ROW_BYTES, ROWS, TILES, TileElement, TileShape
from sartor.codegen.kernels.layers.kernel_layer import KernelLayer
from sartor.codegen.mlir.iree_compiler import ir, shared_context
from sartor.runtime.driver.signature import Array

Group = tuple[int, int, int]


class Trace:
    """How often a workgroup touched each element of each buffer.

    Attributes:
        reads: by buffer.
        writes: by buffer.
        fetches: by buffer, of what its lines begin with; what lies beyond the end does not count.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.reads = [np.zeros(size, np.int64) for size in sizes]
        self.writes = [np.zeros(size, np.int64) for size in sizes]
        self.fetches = [np.zeros(size, np.int64) for size in sizes]

    def fetch(self, memory: ir.Value, offset: Index) -> None:
        buffer = self.fetches[cast(int, memory)]
        assert isinstance(offset, int)
        if 0 <= offset < len(buffer):
            buffer[offset] += 1

    def touch(self, buffers: Sequence[Array], memory: ir.Value, offset: Index, count: int) -> None:
        buffer = buffers[cast(int, memory)]
        assert isinstance(offset, int)
        assert 0 <= offset <= offset + count <= len(buffer), f"{offset} + {count} of {len(buffer)}"
        buffer[offset : offset + count] += 1


class _Buffer(int):
    """The number of a buffer, which knows its type as a value does."""

    type: ir.Type

    @staticmethod
    def of(index: int, tensor: TensorType) -> _Buffer:
        buffer = _Buffer(index)
        buffer.type = ir.MemRefType.get([tensor.elements], ir.Type.parse(tensor.dtype))
        return buffer


class _Tracer(Assembler):
    """Folds everything: loops run here, memory is a number, and every vector is the same one."""

    def __init__(self, entry: ir.Block, lanes: int, trace: Trace) -> None:
        super().__init__(entry, lanes)
        self._trace = trace
        self._kept: dict[tuple[ir.Value, int], Index] = {}
        self._some = self.splat(ir.FloatAttr.get(ir.F32Type.get(), 1.0))

    def scratch(self, elements: int, element: ir.Type) -> ir.Value:
        """Buffers of a workgroup's own come after all others."""
        for buffers in (self._trace.reads, self._trace.writes, self._trace.fetches):
            buffers.append(np.zeros(elements, np.int64))
        tensor = TensorType((elements,), str(element))
        return cast(ir.Value, _Buffer.of(len(self._trace.reads) - 1, tensor))

    def load(self, memory: ir.Value, offset: Index, count: int, present: Condition = True) -> ir.Value:
        assert isinstance(present, bool)
        if present:
            self._trace.touch(self._trace.reads, memory, offset, count)
        return self._some

    def load_as_stored(
        self, memory: ir.Value, offset: Index, count: int, present: Condition = True, size: int | None = None
    ) -> ir.Value:
        self.load(memory, offset, count, present)
        return self.splat(ir.FloatAttr.get(ir.MemRefType(memory.type).element_type, 1.0))

    def load_words(self, memory: ir.Value, offset: Index, kind: ir.VectorType) -> ir.Value:
        return self.load(memory, offset, _elements(kind, memory))

    def store_words(self, stored: ir.Value, memory: ir.Value, offset: Index) -> None:
        self.store(stored, memory, offset, _elements(ir.VectorType(stored.type), memory))

    def broadcast(self, memory: ir.Value, offset: Index) -> ir.Value:
        return self.load(memory, offset, 1)

    def store(self, stored: ir.Value, memory: ir.Value, offset: Index, count: int) -> None:
        self._trace.touch(self._trace.writes, memory, offset, count)

    def store_all(self, stored: ir.Value, memory: ir.Value, offset: Index, count: int) -> None:
        self._trace.touch(self._trace.writes, memory, offset, count)

    def copy(self, source: tuple[ir.Value, Index], target: tuple[ir.Value, Index], count: int) -> None:
        self._trace.touch(self._trace.reads, *source, count)
        self._trace.touch(self._trace.writes, *target, count)

    def fill(self, value: ir.Value, memory: ir.Value, start: Index, count: int) -> None:
        self._trace.touch(self._trace.writes, memory, start, count)

    def zero_of(self, memory: ir.Value) -> ir.Value:
        return self._some

    def tile(self, memory: ir.Value, offset: Index, step: int, shape: tuple[int, int], *, is_read: bool) -> None:
        """Rows of a tile, ``step`` elements apart."""
        buffers = self._trace.reads if is_read else self._trace.writes
        for row in range(shape[0]):
            self._trace.touch(buffers, memory, self.add(offset, row * step), shape[1])

    def keep(self, memory: ir.Value, place: int, index: Index) -> None:
        self._kept[memory, place] = index

    def kept(self, memory: ir.Value, place: int) -> Index:
        return self._kept[memory, place]

    def prefetch(self, memory: ir.Value, offset: Index, *, is_written: bool = False) -> None:
        self._trace.fetch(memory, offset)

    def prefetch_stream(self, memory: ir.Value, offset: Index) -> None:
        self._trace.fetch(memory, offset)

    def loop(self, lower: Index, upper: Index, step: int, carried: Sequence[ir.Value], body: Body) -> list[ir.Value]:
        assert isinstance(lower, int)
        assert isinstance(upper, int)
        values = list(carried)
        for index in range(lower, upper, step):
            values = body(index, values)
        return values


class _TracedUnit:
    """Stands for AMX: remembers shapes, and notes what tiles touch."""

    def __init__(self, asm: _Tracer) -> None:
        self._asm = asm
        self._shapes: Sequence[TileShape] = ()

    def open(self, shapes: Sequence[TileShape]) -> None:
        assert len(shapes) <= TILES
        assert all(0 < shape.rows <= ROWS and 0 < shape.row_bytes <= ROW_BYTES for shape in shapes)
        self._shapes = shapes

    def close(self) -> None:
        self._shapes = ()

    def zero(self, tile: int) -> None:
        assert self._shapes[tile]

    def step(self, size: int) -> int:
        return size

    def address(self, memory: ir.Value, offset: Index) -> tuple[ir.Value, Index]:
        return memory, offset

    def load(self, tile: int, address: tuple[ir.Value, Index], step: int) -> None:
        self._touch(tile, address, step, is_read=True)

    def store(self, tile: int, address: tuple[ir.Value, Index], step: int) -> None:
        self._touch(tile, address, step, is_read=False)

    def multiply(self, element: TileElement, total: int, left: int, right: int) -> None:
        pixels, depth, channels = (self._shapes[each] for each in (left, right, total))
        assert pixels.rows == channels.rows
        assert pixels.row_bytes == 4 * depth.rows
        assert depth.row_bytes == channels.row_bytes

    def _touch(self, tile: int, address: tuple[ir.Value, Index], step: int, *, is_read: bool) -> None:
        memory, offset = address
        size = ir.MemRefType(memory.type).element_type.width // 8
        shape = self._shapes[tile]
        self._asm.tile(memory, offset, step // size, (shape.rows, shape.row_bytes // size), is_read=is_read)


def traces(layer: KernelLayer) -> Iterator[tuple[Group, Trace]]:
    """What each workgroup of a kernel touches."""
    kernel = layer.kernel
    tensors = (*kernel.reads, *kernel.results)
    x, y, z = map(range, kernel.groups)
    for group in product(x, y, z):
        trace = Trace([tensor.elements for tensor in tensors])
        with (
            pytest.MonkeyPatch.context() as patch,
            shared_context() as context,
            ir.Location.unknown(context),
        ):
            patch.setattr(emitter, "AmxUnit", _TracedUnit)
            module = ir.Module.parse("func.func @kernel() { return }")
            block = module.body.operations[0].regions[0].blocks[0]
            with ir.InsertionPoint(block.operations[0]):
                buffers = [cast(ir.Value, _Buffer.of(index, tensor)) for index, tensor in enumerate(tensors)]
                layer.write(_Tracer(block, kernel.lanes, trace), buffers, group)
        yield group, trace


def _elements(kind: ir.VectorType, memory: ir.Value) -> int:
    """Elements of a memory that take the bits of a vector."""
    bits = kind.shape[0] * kind.element_type.width
    return int(bits // ir.MemRefType(memory.type).element_type.width)
