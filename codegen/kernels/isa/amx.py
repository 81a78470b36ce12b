"""AMX, the matrix extension of x86-64: eight tiles of up to 16 rows of 64 bytes; the product of two is added to a
third.

Instructions name tiles by number, so the compiler sees no values. They are intrinsics with side effects, and run in the
order in which they are emitted (Intel, Architecture Instruction Set Extensions, chapter 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.isa.multiply_instruction import MultiplyInstruction
from sartor.codegen.mlir.iree_compiler import arith, ir, llvm, memref
from sartor.codegen.mlir.machine import Machine

TILES = 8
ROWS = 16
ROW_BYTES = 64
_CONFIGURATION_BYTES = 64
_SUM_BYTES = 4
_FIRST_WIDTH = 16
_FIRST_HEIGHT = 48
# arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA): Linux lets only processes that requested tiles use them.
_ARCH_PRCTL = 158
_REQUEST = 0x1023
_TILE_DATA = 18


@dataclass(frozen=True)
class TileElement(MultiplyInstruction):
    """An instruction that multiplies tiles; the numbers in four adjacent bytes of a row are a group.

    Attributes:
        feature: CPU feature that provides the instruction, by LLVM's name.
    """

    feature: str

    @property
    def depth(self) -> int:
        """Numbers in a full row."""
        return ROWS * self.group

    @property
    def bytes(self) -> int:
        """Bytes of a number."""
        return _SUM_BYTES // self.group

    @property
    def rate(self) -> int:
        """Products relative to an instruction in f32: each row of one tile is multiplied by all of the other."""
        return ROWS * self.group

    @property
    def requirement(self) -> str:
        """The CPU feature that provides the instruction, by LLVM's name."""
        return self.feature

    def exists_on(self, machine: Machine) -> bool:
        """Whether a CPU has the instruction, even if the operating system withholds it."""
        return self.feature in machine.features

    def refusal(self, machine: Machine) -> Rejected | None:
        """Why code for a CPU cannot use the instruction; None if it can."""
        return machine.refusal(self.feature)


INTEGER = TileElement("i8", 4, "i32", "llvm.x86.tdpbssd", "amx-int8")
BFLOAT = TileElement("bf16", 2, "f32", "llvm.x86.tdpbf16ps", "amx-bf16")


@dataclass(frozen=True)
class TileShape:
    """Rows of a tile and bytes of a row."""

    rows: int
    row_bytes: int


class AmxUnit:
    """Emits tile instructions.

    Args:
        asm: emits the code.
    """

    def __init__(self, asm: Assembler) -> None:
        self._asm = asm
        self._numbers = [self._constant(number, 8) for number in range(TILES)]

    def open(self, shapes: Sequence[TileShape]) -> None:
        """Request tiles from the operating system, and configure their shapes."""
        self._ask()
        words = _configuration(shapes)
        memory = self._asm.scratch(len(words), ir.IntegerType.get_signless(64))
        for index, word in enumerate(words):
            memref.store(self._constant(word, 64), memory, [self._asm.value(index)])
        self._call("llvm.x86.ldtilecfg", [self.address(memory, 0)])

    def close(self) -> None:
        """Release the tiles, so that context switches need not save them."""
        self._call("llvm.x86.tilerelease", [])

    def zero(self, tile: int) -> None:
        self._call("llvm.x86.tilezero", [self._numbers[tile]])

    def load(self, tile: int, address: ir.Value, step: ir.Value) -> None:
        """Load a tile whose rows are ``step`` bytes apart."""
        self._call("llvm.x86.tileloadd64", [self._numbers[tile], address, step])

    def store(self, tile: int, address: ir.Value, step: ir.Value) -> None:
        """Store a tile with rows ``step`` bytes apart."""
        self._call("llvm.x86.tilestored64", [self._numbers[tile], address, step])

    def multiply(self, element: TileElement, total: int, lhs: int, rhs: int) -> None:
        """Add the product of two tiles to a third."""
        self._call(element.product, [self._numbers[number] for number in (total, lhs, rhs)])

    def step(self, size: int) -> ir.Value:
        """A distance of rows in bytes, as a value."""
        return self._constant(size, 64)

    def address(self, memory: ir.Value, offset: Index) -> ir.Value:
        """Pointer to an element of ``memory``."""
        base = memref.extract_aligned_pointer_as_index(memory)
        position = self._asm.add(base, self._asm.mul(offset, _element_bytes(memory)))
        integer = arith.index_cast(ir.IntegerType.get_signless(64), self._asm.value(position))
        return llvm.inttoptr(ir.Type.parse("!llvm.ptr"), integer)

    def _ask(self) -> None:
        word = ir.IntegerType.get_signless(64)
        arguments = [self._constant(number, 64) for number in (_ARCH_PRCTL, _REQUEST, _TILE_DATA)]
        clobbers = "~{rcx},~{r11},~{memory}"
        llvm.inline_asm(
            word, arguments, "syscall", f"={{rax}},{{rax}},{{rdi}},{{rsi}},{clobbers}", has_side_effects=True
        )

    def _call(self, name: str, arguments: Sequence[ir.Value]) -> None:
        llvm.call_intrinsic(None, name, arguments, [], [])

    def _constant(self, value: int, bits: int) -> ir.Value:
        return self._asm.integer(value, bits)


def _configuration(shapes: Sequence[TileShape]) -> list[int]:
    """The 64 bytes of the tile configuration, as signed words of 64 bits."""
    raw = bytearray(_CONFIGURATION_BYTES)
    raw[0] = 1
    for tile, shape in enumerate(shapes):
        raw[_FIRST_WIDTH + 2 * tile] = shape.row_bytes
        raw[_FIRST_HEIGHT + tile] = shape.rows
    return [int.from_bytes(raw[start : start + 8], "little", signed=True) for start in range(0, len(raw), 8)]


def _element_bytes(memory: ir.Value) -> int:
    element = ir.MemRefType(memory.type).element_type
    return int(element.width) // 8
