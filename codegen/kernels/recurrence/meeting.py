"""How workgroups that share the steps of a sequence tell each other what is computed.

No workgroup may rely on another one's running at the same time: a worker may run one after the other. So each part of
a phase has a flag that tells whether it is free, claimed or complete. A workgroup takes its own part and then all that
are free, so that it gets through alone, and waits only for parts that others are computing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.mlir.iree_compiler import arith, ir, llvm, memref, scf

FLAG_PITCH = 16
"""Numbers of 32 bits from one flag to the next: each has a line of the cache to itself."""

# Who claims a part adds one, who completes it sets this number: a part is complete from it on, whoever claims it later.
_COMPLETE = 1 << 16
_FLAG_BYTES = 4
_PAUSES = "sse2"


@dataclass(frozen=True)
class Meeting:
    """A phase of a step that several workgroups compute.

    Attributes:
        asm: emits the code.
        flags: memory of 32-bit integers, zero at first.
        begin: offset of the phase's flags.
        own: the part that is this workgroup's.
        parts: number of parts.
    """

    asm: Assembler
    flags: ir.Value
    begin: Index
    own: Index
    parts: int

    def share(self, compute: Callable[[Index], None]) -> None:
        """Emit the computation of all parts by those who meet; afterwards all of them are complete."""
        asm = self.asm

        def each(turn: Index) -> None:
            _, part = asm.divide(asm.add(self.own, turn), self.parts)
            at = asm.value(asm.add(self.begin, asm.mul(part, FLAG_PITCH)))

            def done() -> None:
                compute(part)
                # All that was stored before is visible to who sees this.
                memref.atomic_rmw(arith.AtomicRMWKind.assign, asm.integer(_COMPLETE, 32), self.flags, [at])

            asm.when(self._is_needed(at), done)

        following = asm.mul(asm.add(self.own, self.parts), FLAG_PITCH)
        asm.prefetch(self.flags, asm.add(self.begin, following), is_written=True)
        asm.repeat(0, self.parts, 1, each)

    def _is_needed(self, at: ir.Value) -> ir.Value:
        """Whether this workgroup has claimed a part and has to compute it; else it waits until the part is complete."""
        yes, location = arith.constant(_bit(), 1), ir.Location.unknown()
        loop = scf.WhileOp([_bit(), _bit()], [yes, yes])
        asked = loop.before.blocks.append(_bit(), _bit(), arg_locs=[location] * 2)
        with ir.InsertionPoint(asked):
            scf.condition(asked.arguments[1], list(asked.arguments))
        body = loop.after.blocks.append(_bit(), _bit(), arg_locs=[location] * 2)
        with ir.InsertionPoint(body):
            flag = self._read(at)
            is_missing = arith.cmpi(arith.CmpIPredicate.slt, flag, self.asm.integer(_COMPLETE, 32))
            waits = arith.andi(is_missing, arith.xori(self._claims(flag, at), yes))
            scf.yield_([is_missing, waits])
        found: ir.Value = loop.results[0]
        return found

    def _claims(self, flag: ir.Value, at: ir.Value) -> ir.Value:
        """Whether a part was free; now it is claimed."""
        free = self._is_zero(flag)
        branch = scf.IfOp(free, [_bit()], has_else=True)
        with ir.InsertionPoint(branch.then_block):
            kind, one = arith.AtomicRMWKind.addi, self.asm.integer(1, 32)
            scf.yield_([self._is_zero(memref.atomic_rmw(kind, one, self.flags, [at]))])
        with ir.InsertionPoint(branch.else_block):
            if self.asm.has(_PAUSES):
                # It tells the core that this is a loop that waits.
                llvm.call_intrinsic(None, "llvm.x86.sse2.pause", [], [], [])
            scf.yield_([free])
        found: ir.Value = branch.results[0]
        return found

    def _is_zero(self, number: ir.Value) -> ir.Value:
        found: ir.Value = arith.cmpi(arith.CmpIPredicate.eq, number, self.asm.integer(0, 32))
        return found

    def _read(self, at: ir.Value) -> ir.Value:
        """A flag; what is read afterwards is at least as new."""
        words = ir.IntegerType.get_signless(64)
        begin = arith.index_cast(words, memref.extract_aligned_pointer_as_index(self.flags))
        offset = arith.index_cast(words, self.asm.value(self.asm.mul(at, _FLAG_BYTES)))
        address = llvm.inttoptr(llvm.PointerType.get(), arith.addi(begin, offset))
        kind = ir.IntegerType.get_signless(32)
        found: ir.Value = llvm.load(kind, address, alignment=_FLAG_BYTES, ordering=llvm.AtomicOrdering.acquire)
        return found


def _bit() -> ir.Type:
    return ir.IntegerType.get_signless(1)
