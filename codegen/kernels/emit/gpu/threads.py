"""Emit the code of one thread of a workgroup on a GPU: shared memory, asynchronous copies, products of matrices."""

from __future__ import annotations

from collections.abc import Sequence

from sartor.codegen.ir.machines.cuda import WARP
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.mlir.iree_compiler import arith, ir, memref, vector

_SHARED = "#gpu.address_space<workgroup>"
_BYTE = 8


class ThreadAssembler(Assembler):
    """Emits the code of one thread; vectors are short, as wide as one access to memory."""

    def thread(self) -> ir.Value:
        """The number of the thread in its workgroup."""
        return _op("gpu.thread_id", [], [ir.IndexType.get()], {"dimension": ir.Attribute.parse("#gpu.dim<x>")})

    def shared(self, elements: int, element: ir.Type) -> ir.Value:
        """Memory of the workgroup."""
        kind = ir.MemRefType.get([elements], element, memory_space=ir.Attribute.parse(_SHARED))
        sizes = ir.DenseI32ArrayAttr.get([0, 0])
        return _op("memref.alloc", [], [kind], {"operandSegmentSizes": sizes})

    def barrier(self) -> None:
        """Wait for all threads of the workgroup; what they stored to shared memory can be read then."""
        ir.Operation.create("gpu.barrier", attributes={"scope": ir.Attribute.parse("#gpu.barrier_scope<workgroup>")})

    def copy_later(
        self, source: tuple[ir.Value, Index], target: tuple[ir.Value, Index], count: int, read: Index | None = None
    ) -> None:
        """Start copying ``count`` adjacent elements to shared memory (``cp.async``); memories are given with offsets.

        Args:
            source: in the memory of the GPU.
            target: in shared memory.
            count: how many elements, 4, 8 or 16 bytes.
            read: how many of them are read, the others become zero; None for all.
        """
        (origin, offset), (shared, place) = source, target
        operands = [shared, self.value(place), origin, self.value(offset)]
        operands += [] if read is None else [self.value(read)]
        width = ir.MemRefType(shared.type).element_type.width * count // _BYTE
        attributes = {
            "dstElements": ir.IntegerAttr.get(ir.IndexType.get(), count),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1, 1, 1, int(read is not None)]),
        }
        if width == _WIDEST:
            attributes["bypassL1"] = ir.UnitAttr.get()
        _op("nvgpu.device_async_copy", operands, [ir.Type.parse("!nvgpu.device.async.token")], attributes)

    def end_of_copies(self) -> None:
        """Make the copies that were started since the last call a group, which may be empty."""
        ir.Operation.create("nvvm.cp.async.commit.group")

    def wait_for_copies(self, pending: int) -> None:
        """Wait until at most the ``pending`` last groups of this thread's copies are incomplete."""
        number = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), pending)
        ir.Operation.create("nvvm.cp.async.wait.group", attributes={"n": number})

    def load_matrices(
        self, memory: ir.Value, offset: Index, element: ir.Type, count: int = 4, *, turned: bool = False
    ) -> ir.Value:
        """Load matrices of eight rows of 16 bytes from shared memory (``ldmatrix``).

        Lane ``8 m + r`` gives the ``offset`` of row ``r`` of matrix ``m``. Each lane gets from each matrix the four
        bytes number ``lane % 4`` of row ``lane / 4``: a vector ``[count, numbers of 4 bytes]``. Of matrices that are
        ``turned``, whose elements have two bytes, these are the rows of the transposed matrix.
        """
        kind = ir.VectorType.get([count, _FOUR_BYTES // element.width], element)
        attributes = {
            "transpose": ir.BoolAttr.get(turned),
            "numTiles": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), count),
        }
        return _op("nvgpu.ldmatrix", [memory, self.value(offset)], [kind], attributes)

    def load_one(self, memory: ir.Value, offset: Index) -> ir.Value:
        """An element of a memory, in its own type."""
        return memref.load(memory, [self.value(offset)])

    def multiply_matrices(
        self, left: ir.Value, right: ir.Value, total: ir.Value, shape: tuple[int, int, int], *, is_tf32: bool = False
    ) -> ir.Value:
        """``total + left * right`` of a warp (``mma.sync``), in the PTX ISA's fragments; ``shape`` is M, N and K."""
        index = ir.IntegerType.get_signless(64)
        attributes: dict[str, ir.Attribute] = {
            "mmaShape": ir.ArrayAttr.get([ir.IntegerAttr.get(index, extent) for extent in shape])
        }
        if is_tf32:
            attributes["tf32Enabled"] = ir.UnitAttr.get()
        return _op("nvgpu.mma.sync", [left, right, total], [total.type], attributes)

    def from_lane(self, value: ir.Value, distance: int) -> ir.Value:
        """The 32-bit value of the lane whose number differs in the bits of ``distance`` (``shfl.sync.bfly``)."""
        bits = ir.IntegerType.get_signless(32)
        operands = [value, arith.constant(bits, distance), arith.constant(bits, WARP)]
        attributes = {"mode": ir.Attribute.parse("#gpu<shuffle_mode<xor>>")}
        shuffled = ir.Operation.create(
            "gpu.shuffle",
            operands=operands,
            results=[value.type, ir.IntegerType.get_signless(1)],
            attributes=attributes,
        )
        return shuffled.results[0]

    def xor(self, one: Index, other: Index) -> Index:
        """Bitwise exclusive or of two indices."""
        if isinstance(one, int) and isinstance(other, int):
            return one ^ other
        return arith.xori(self.value(one), self.value(other))

    def load_as_stored(
        self, memory: ir.Value, offset: Index, count: int, present: bool | ir.Value = True, size: int | None = None
    ) -> ir.Value:
        """Like that of ``Assembler``, in one access: vectors of ``lanes`` elements begin at a multiple of them."""
        if count != self.lanes or present is not True or size not in (None, self.lanes):
            return super().load_as_stored(memory, offset, count, present, size)
        element = ir.MemRefType(memory.type).element_type
        return vector.load(
            self.vector_type(element), memory, [self.value(offset)], alignment=self.lanes * element.width // _BYTE
        )

    def load_words(self, memory: ir.Value, offset: Index, kind: ir.VectorType) -> ir.Value:
        """Like that of ``Assembler``, in one access: what is loaded lies at a multiple of its size."""
        width = ir.MemRefType(memory.type).element_type.width
        size = kind.shape[0] * kind.element_type.width
        stored = ir.VectorType.get([size // width], ir.MemRefType(memory.type).element_type)
        loaded = vector.load(stored, memory, [self.value(offset)], alignment=size // _BYTE)
        return vector.bitcast(kind, loaded)

    def kept_rounded(self, product: ir.Value) -> ir.Value:
        """Like that of ``Assembler``: what assembly returns is not fused with what follows."""
        moved = [self.quick("mov.f32", vector.extract(product, [], [index])) for index in range(self.lanes)]
        return vector.from_elements(product.type, moved)

    def store(self, stored: ir.Value, memory: ir.Value, offset: Index, count: int) -> None:
        """Like that of ``Assembler``, in one access."""
        element = ir.MemRefType(memory.type).element_type
        if memory in self._scales:
            stored = self._numbers(stored, self._scales[memory])
        stored = self.rounded(stored, element)
        vector.store(stored, memory, [self.value(offset)], alignment=self.lanes * element.width // _BYTE)

    def quick(self, instruction: str, operand: ir.Value) -> ir.Value:
        """The result of an instruction of PTX over one f32."""
        real = ir.F32Type.get()
        assembly = ir.Operation.create(
            "llvm.inline_asm",
            operands=[operand],
            results=[real],
            attributes={
                "asm_string": ir.StringAttr.get(f"{instruction} $0, $1;"),
                "constraints": ir.StringAttr.get("=f,f"),
            },
        )
        return assembly.results[0]


_WIDEST = 16
_FOUR_BYTES = 32


def _op(
    name: str, operands: Sequence[ir.Value], results: Sequence[ir.Type], attributes: dict[str, ir.Attribute]
) -> ir.Value:
    created = ir.Operation.create(name, operands=list(operands), results=list(results), attributes=attributes)
    return created.results[0]
