"""Elementwise layers of one tensor in 8 bits by a table: all 256 results are computed first, then looked up.

Each workgroup computes the table by the layer's own ops, so results have the bits of computing every element. PSHUFB
looks up vectors of bytes in 16 bytes, and gives zero for bytes whose top bit is set. So each sixteenth of the table is
replaced by its exclusive or with the one before, and the distance from its begin is looked up: all that the byte is not
below add up to its own sixteenth.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.epilogue import check_region, constant_of, emit_region
from sartor.codegen.kernels.loops.partition import workgroup_range
from sartor.codegen.kernels.windows.elementwise import elementwise_ops
from sartor.codegen.mlir.iree_compiler import arith, ir, llvm, vector
from sartor.codegen.mlir.operations import body_of

ENTRIES = 256
_PART = 16
_BYTE, _WORD = 8, 32
SHUFFLES = {"avx2": ("llvm.x86.avx2.pshuf.b", 32), "ssse3": ("llvm.x86.ssse3.pshuf.b.128", 16)}
"""LLVM's names of the instruction that looks bytes up, and how many, by CPU feature; the widest comes first."""


@dataclass(frozen=True)
class Table:
    """The kernel.

    Attributes:
        ops: the layer's ops, in order.
        source: what the first of them read.
        elements: of the tensor.
        size: bytes that are looked up at once.
        parts: workgroups that partition the elements.
        lanes: elements of a vector of f32.
    """

    ops: tuple[ir.Operation, ...]
    source: ir.Value
    elements: int
    size: int
    parts: int
    lanes: int

    @property
    def groups(self) -> tuple[int, int, int]:
        """Number of workgroups in each dimension."""
        return self.parts, 1, 1

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""
        source, result = memories
        table = asm.scratch(ENTRIES, ir.IntegerType.get_signless(_BYTE))
        asm.copy_scale(table, result)
        asm.repeat(0, ENTRIES, self.lanes, lambda code: self._compute(asm, source, table, code))
        parts = [self._part(asm, table, index) for index in range(ENTRIES // _PART)]
        look_up = functools.partial(self._look_up, asm, (source, result), _changes(parts))
        first, end = workgroup_range(asm, self.elements // self.size, self.parts, group[0])
        asm.repeat(asm.mul(first, self.size), asm.mul(end, self.size), self.size, look_up)
        if self.elements % self.size:
            # The last bytes are looked up together with some that were before.
            asm.when(asm.equal(group[0], self.parts - 1), lambda: look_up(self.elements - self.size))

    def _compute(self, asm: Assembler, source: ir.Value, table: ir.Value, code: Index) -> None:
        """Store the results of a vector of codes, which are also their offsets, as bytes without a sign."""
        word = ir.IntegerType.get_signless(_WORD)
        start = vector.broadcast(asm.vector_type(word), arith.index_cast(word, asm.value(code)))
        codes = arith.addi(start, asm.constant_vector(np.arange(self.lanes, dtype=np.int32)))
        stored = arith.trunci(asm.vector_type(ir.IntegerType.get_signless(_BYTE)), codes)
        values = {self.source: asm.real(source, stored)}
        for op in self.ops:
            values[op.results[0]] = emit_region(
                asm, op, [_read(asm, operand, values) for operand in list(op.operands)[:-1]]
            )
        asm.store(values[self.ops[-1].results[0]], table, code, self.lanes)

    def _part(self, asm: Assembler, table: ir.Value, number: int) -> ir.Value:
        """A sixteenth of the table, repeated, as the instruction looks up within 16 bytes."""
        part = vector.load(self._kind(_PART), table, [asm.value(number * _PART)])
        return vector.shuffle(part, part, [*range(_PART)] * (self.size // _PART))

    def _look_up(
        self, asm: Assembler, memories: tuple[ir.Value, ir.Value], changes: Sequence[ir.Value], offset: Index
    ) -> None:
        kind = self._kind(self.size)
        codes = vector.load(kind, memories[0], [asm.value(offset)])
        top = arith.constant(kind, ir.DenseElementsAttr.get_splat(kind, ir.IntegerAttr.get(kind.element_type, -128)))
        half = len(changes) // 2
        # Bytes whose top bit is set give zero.
        lower = self._found(codes, changes[:half])
        upper = self._found(arith.xori(codes, top), changes[half:])
        vector.store(arith.xori(lower, upper), memories[1], [asm.value(offset)])

    def _found(self, codes: ir.Value, changes: Sequence[ir.Value]) -> ir.Value:
        """What a half of the table gives for codes of 0 to 127, and zero for others."""
        kind, (name, _) = codes.type, next(shuffle for shuffle in SHUFFLES.values() if shuffle[1] == self.size)
        step = arith.constant(kind, ir.DenseElementsAttr.get_splat(kind, ir.IntegerAttr.get(kind.element_type, _PART)))
        looked_up = llvm.call_intrinsic(kind, name, [changes[0], codes], [], [])
        for change in changes[1:]:
            codes = llvm.call_intrinsic(kind, "llvm.ssub.sat", [codes, step], [], [])
            looked_up = arith.xori(looked_up, llvm.call_intrinsic(kind, name, [change, codes], [], []))
        return looked_up

    def _kind(self, size: int) -> ir.VectorType:
        return ir.VectorType.get([size], ir.IntegerType.get_signless(_BYTE))


def _changes(parts: Sequence[ir.Value]) -> list[ir.Value]:
    """What each part of a half of the table changes, beginning with the first part itself."""
    half = len(parts) // 2
    halves = (parts[:half], parts[half:])
    return [
        part if not number else arith.xori(part, half[number - 1])
        for half in halves
        for number, part in enumerate(half)
    ]


def _read(asm: Assembler, value: ir.Value, values: dict[ir.Value, ir.Value]) -> ir.Value:
    constant = constant_of(value)
    return values[value] if constant is None else asm.splat(constant)


def table_ops(function: ir.Operation) -> tuple[tuple[ir.Operation, ...], ir.Value]:
    """The ops of a layer that computes each element from one element of its only argument, and that argument.

    Raises:
        RejectionError: if the layer computes anything else.
    """
    arguments = list(body_of(function).arguments)
    if len(arguments) != 1:
        raise RejectionError("it reads more than one tensor")
    ops = elementwise_ops(function)
    known = set(arguments)
    for op in ops:
        check_region(op)
        if any(operand not in known and constant_of(operand) is None for operand in list(op.operands)[:-1]):
            raise RejectionError("an op reads numbers that differ from element to element")
        known.add(op.results[0])
    *_, returned = body_of(function).operations
    if list(returned.operation.operands) != [ops[-1].results[0]]:
        raise RejectionError("what it returns is not the last op's result")
    return tuple(ops), arguments[0]
