"""How workgroups that share the steps of a sequence tell each other what is computed.

No workgroup may rely on another one's running at the same time: a worker may run one after the other. So each part of
a phase has a flag that tells whether it is free, claimed or complete. A workgroup takes its own part and then all that
are free, so that it gets through alone. Only then it waits for those that others are computing. It does so without
giving its processor away, which a kernel cannot: where threads of one real-time priority share a processor, it might
wait for ever.

A flag counts phases. Phases take turns with a few flags, so that the next one is in a core's cache when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.mlir.iree_compiler import arith, ir, llvm, memref, scf

_PITCH = 32
"""Numbers of 32 bits from one flag to the next: each has two lines of the cache, as cores fetch both of such a pair."""

_TURNS = 4
_FLAG_BYTES = 4
_PAUSES = "sse2"
_ACQUIRE, _RELEASE = llvm.AtomicOrdering.acquire, llvm.AtomicOrdering.release
_ACQUIRE_RELEASE = llvm.AtomicOrdering.acq_rel


def flags_of(parts: int) -> int:
    """Numbers of 32 bits that hold the flags of meetings of so many parts."""
    return _TURNS * parts * _PITCH


@dataclass(frozen=True)
class Meeting:
    """A phase that several workgroups compute.

    Attributes:
        asm: emits the code.
        flags: memory of 32-bit integers, zero at first.
        begin: offset of the flags of these meetings.
        phase: number of the phase, counted from 0 among those with these flags.
        own: the part that is this workgroup's.
        parts: number of parts.
    """

    asm: Assembler
    flags: ir.Value
    begin: Index
    phase: Index
    own: Index
    parts: int

    def share(self, compute: Callable[[Index], None]) -> None:
        """Emit the computation of all parts by those who meet; afterwards all of them are complete."""
        asm = self.asm

        def take(turn: Index) -> None:
            part = self._part(turn)
            address = self._address(self.phase, part)

            def done() -> None:
                compute(part)
                # What was stored before is visible to who reads this.
                llvm.store(self._word(self._complete), address, alignment=_FLAG_BYTES, ordering=_RELEASE)

            asm.when(self._claims(address), done)

        asm.prefetch(self.flags, self._offset(asm.add(self.phase, 1), self.own), is_written=True)
        asm.repeat(0, self.parts, 1, take)
        asm.repeat(0, self.parts, 1, lambda turn: self._wait(self._address(self.phase, self._part(turn))))

    def _part(self, turn: Index) -> Index:
        """The parts in turn, a workgroup's own first."""
        return self.asm.divide(self.asm.add(self.own, turn), self.parts)[1]

    @property
    def _claimed(self) -> Index:
        return self.asm.add(self.asm.mul(self.phase, 2), 1)

    @property
    def _complete(self) -> Index:
        return self.asm.add(self.asm.mul(self.phase, 2), 2)

    def _claims(self, address: ir.Value) -> ir.Value:
        """Whether a part was free; now it is claimed."""
        flag, claimed = self._read(address), self._word(self._claimed)
        branch = scf.IfOp(arith.cmpi(arith.CmpIPredicate.slt, flag, claimed), [_bit()], has_else=True)
        with ir.InsertionPoint(branch.then_block):
            kind = llvm.StructType.get_literal([claimed.type, _bit()])
            swapped = llvm.AtomicCmpXchgOp(
                address, flag, claimed, _ACQUIRE_RELEASE, _ACQUIRE, alignment=_FLAG_BYTES, results=[kind]
            )
            scf.yield_([llvm.extractvalue(_bit(), swapped.result, [1])])
        with ir.InsertionPoint(branch.else_block):
            scf.yield_([arith.constant(_bit(), 0)])
        is_claimed: ir.Value = branch.results[0]
        return is_claimed

    def _wait(self, address: ir.Value) -> None:
        """Emit a loop that ends when a part is complete."""
        complete = self._word(self._complete)
        loop = scf.WhileOp([], [])
        with ir.InsertionPoint(loop.before.blocks.append()):
            scf.condition(arith.cmpi(arith.CmpIPredicate.slt, self._read(address), complete), [])
        with ir.InsertionPoint(loop.after.blocks.append()):
            if self.asm.has(_PAUSES):
                # It tells the core that this is a loop that waits.
                llvm.call_intrinsic(None, "llvm.x86.sse2.pause", [], [], [])
            scf.yield_([])

    def _read(self, address: ir.Value) -> ir.Value:
        """A flag; what is read afterwards is at least as new."""
        kind = ir.IntegerType.get_signless(32)
        word: ir.Value = llvm.load(kind, address, alignment=_FLAG_BYTES, ordering=_ACQUIRE)
        return word

    def _offset(self, phase: Index, part: Index) -> Index:
        """Offset of a part's flag in a phase."""
        asm = self.asm
        _, turn = asm.divide(phase, _TURNS)
        return asm.add(self.begin, asm.mul(asm.add(asm.mul(turn, self.parts), part), _PITCH))

    def _address(self, phase: Index, part: Index) -> ir.Value:
        words = ir.IntegerType.get_signless(64)
        begin = arith.index_cast(words, memref.extract_aligned_pointer_as_index(self.flags))
        offset = self.asm.value(self.asm.mul(self._offset(phase, part), _FLAG_BYTES))
        pointer: ir.Value = llvm.inttoptr(llvm.PointerType.get(), arith.addi(begin, arith.index_cast(words, offset)))
        return pointer

    def _word(self, number: Index) -> ir.Value:
        narrow: ir.Value = arith.index_cast(ir.IntegerType.get_signless(32), self.asm.value(number))
        return narrow


def _bit() -> ir.Type:
    return ir.IntegerType.get_signless(1)
