"""The ops around a layer's root, on vectors: the value that sums start from, and the elementwise ops that follow.

The region of every ``linalg.generic`` is emitted again, op by op, on vectors of channels, so that any chain of
elementwise ops is fused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.emit.rounded_numbers import clipped, note, rounded
from sartor.codegen.kernels.emit.special_functions import erf, exp, quotient, tanh
from sartor.codegen.kernels.loops.access import Access
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import body_of, defining_op, indexing_maps, is_elementwise
from sartor.codegen.mlir.rewriting.chain import Chain

_VECTOR_DIALECTS = ("arith.", "math.")
_YIELD = "linalg.yield"
_OWN: dict[str, Callable[..., ir.Value]] = {
    "math.erf": erf,
    "math.exp": exp,
    "math.roundeven": rounded,
    "math.tanh": tanh,
    "arith.divf": quotient,
}

Locate = Callable[[ir.Value, ir.AffineMap], Access]
_Operand: TypeAlias = Access | ir.Attribute | ir.Value


class TileVector(NamedTuple):
    """A vector of a tile.

    Attributes:
        line: row of the tile.
        column: column of the tile.
        vector: number of the vector of channels in the tile.
        channels: how many channels it has.
    """

    line: int
    column: int
    vector: int
    channels: int


@dataclass
class TileOrigin:
    """The position of a tile in the result, while its code is emitted.

    Attributes:
        batch: index of its batch.
        row: index of its first row.
        column: index of its first column.
        vector: index of its first vector of channels.
        inside: index of its first row within the rows that are being computed.
        bases: offset of the tile by each access, as far as it was computed already.
    """

    batch: Index
    row: Index
    column: Index
    vector: Index
    inside: Index = 0
    bases: dict[Access, Index] = field(default_factory=dict)

    def offset(self, asm: Assembler, access: Access, tile_vector: TileVector) -> Index:
        """Offset of a vector of the tile, in elements."""
        return asm.add(self.base(asm, access), self.distance(access, tile_vector))

    def base(self, asm: Assembler, access: Access) -> Index:
        """Offset of the tile, in elements."""
        if access not in self.bases:
            self.bases[access] = asm.add(
                asm.mul(self.batch, access.batch),
                asm.mul(self.inside if access.is_local else self.row, access.row),
                asm.mul(self.column, access.column),
                asm.mul(self.vector, access.vector or 0),
                access.base,
            )
        return self.bases[access]

    def distance(self, access: Access, tile_vector: TileVector) -> int:
        """Elements from the beginning of the tile to one of its vectors."""
        vectors = tile_vector.vector * (access.vector or 0)
        return tile_vector.line * access.row + tile_vector.column * access.column + vectors


@dataclass(frozen=True)
class Epilogue:
    """The chain of a layer with the memory that each operand comes from.

    Attributes:
        chain: of the layer.
        operands: for each op of the chain, but for a root that is not elementwise, its operands: accesses, constants or
            values of the chain.
    """

    chain: Chain
    operands: dict[ir.Operation, tuple[_Operand, ...]]

    @staticmethod
    def of(chain: Chain, locate: Locate) -> Epilogue:
        """The epilogue of a chain.

        Args:
            chain: of the layer.
            locate: returns the access to a tensor from outside the chain, given the map from the result's dimensions to
                its own; raises RejectionError if there is none.

            Raises:
                RejectionError: if an operand or an op cannot be emitted on vectors.
        """
        ops = [op for op in chain.ops if op != chain.root or is_elementwise(op)]
        for op in ops:
            check_region(op)
        return Epilogue(chain, {op: _operands(op, chain, locate) for op in ops})

    def map_accesses(self, change: Callable[[Access], Access]) -> Epilogue:
        """The same epilogue with every access changed."""
        changed = {
            op: tuple(change(operand) if isinstance(operand, Access) else operand for operand in operands)
            for op, operands in self.operands.items()
        }
        return Epilogue(self.chain, changed)

    @property
    def reads(self) -> list[Access | str | None]:
        """What each operand is, in order: an access, the text of a constant, or None for a value of the chain."""
        return [
            operand if isinstance(operand, Access) else str(operand) if isinstance(operand, ir.Attribute) else None
            for operands in self.operands.values()
            for operand in operands
        ]

    @property
    def starts_alike(self) -> bool:
        """Whether accumulators of all pixels start from the same values, such as a bias."""
        if self.chain.initial is None:
            return True
        read = [operand for operand in self.operands[self.chain.initial] if isinstance(operand, Access)]
        return all(access.row == access.column == 0 for access in read)

    @property
    def images(self) -> list[Access]:
        """Accesses to operands of the ops after the root that differ from pixel to pixel."""
        read = [operand for op in self.chain.followers for operand in self.operands[op] if isinstance(operand, Access)]
        return [access for access in dict.fromkeys(read) if access.column]

    def reads_only(self, access: Access) -> bool:
        """Whether the epilogue reads the memory of an access by this access alone."""
        read = [
            access_read
            for operand in self.operands.values()
            for access_read in operand
            if isinstance(access_read, Access)
        ]
        return {operand for operand in read if operand.memory == access.memory} == {access}

    def start(
        self, asm: Assembler, memories: Sequence[ir.Value], origin: TileOrigin, tile_vector: TileVector
    ) -> ir.Value:
        """The initial value of an accumulator of a tile, or what the root computes if it is elementwise itself."""
        if self.chain.root in self.operands:
            return self._evaluate(asm, memories, origin, tile_vector, self.chain.root, {})
        if self.chain.initial is None:
            return asm.splat(ir.FloatAttr.get(ir.F32Type.get(), 0.0))
        return self._evaluate(asm, memories, origin, tile_vector, self.chain.initial, {})

    def finish(
        self, asm: Assembler, memories: Sequence[ir.Value], origin: TileOrigin, tile_vector: TileVector, total: ir.Value
    ) -> ir.Value:
        """The layer's result at a vector of a tile, from the root's sums ``total``."""
        values = {self.chain.root.results[0]: total}
        initial = self.chain.initial
        if initial is not None and any(initial.results[0] in self._read_by(op) for op in self.chain.followers):
            # The sums start from a tensor that an op after them reads, too.
            values[initial.results[0]] = self._evaluate(asm, memories, origin, tile_vector, initial, {})
        for op in self.chain.followers:
            values[op.results[0]] = self._evaluate(asm, memories, origin, tile_vector, op, values)
        return values[self.chain.result]

    def _read_by(self, op: ir.Operation) -> list[ir.Value]:
        """The values of the chain that an op reads."""
        return [operand for operand in self.operands[op] if isinstance(operand, ir.Value)]

    def _evaluate(
        self,
        asm: Assembler,
        memories: Sequence[ir.Value],
        origin: TileOrigin,
        tile_vector: TileVector,
        op: ir.Operation,
        values: dict[ir.Value, ir.Value],
    ) -> ir.Value:
        inputs = [_read(asm, memories, origin, tile_vector, operand, values) for operand in self.operands[op]]
        return emit_region(asm, op, inputs)


def check_region(op: ir.Operation) -> None:
    """Check that the region of a ``linalg.generic`` can be emitted on vectors.

    Raises:
        RejectionError: if it cannot.
    """
    block = body_of(op)
    known = set(block.arguments)
    for view in block.operations:
        inner = view.operation
        if inner.name != _YIELD and not inner.name.startswith(_VECTOR_DIALECTS):
            raise RejectionError(f"{inner.name} cannot be emitted on vectors")
        if any(operand not in known and constant_of(operand) is None for operand in inner.operands):
            raise RejectionError("the region of an elementwise op uses a value that is not constant")
        known.update(inner.results)


def _operands(op: ir.Operation, chain: Chain, locate: Locate) -> tuple[_Operand, ...]:
    inside = {op.results[0] for op in chain.ops}
    count = len(op.operands) - 1
    pairs = list(zip(list(op.operands)[:count], indexing_maps(op), strict=False))
    return tuple(value if value in inside else _outside(value, op, locate) for value, op in pairs)


def _outside(value: ir.Value, indexing: ir.AffineMap, locate: Locate) -> _Operand:
    constant = constant_of(value)
    return locate(value, indexing) if constant is None else constant


def constant_of(value: ir.Value) -> ir.Attribute | None:
    """The scalar of a constant, or that a constant tensor repeats; None for other values."""
    op = defining_op(value)
    if op is None or op.name != "arith.constant":
        return None
    attribute = op.attributes["value"]
    if isinstance(attribute, ir.DenseElementsAttr):
        return attribute.get_splat_value() if attribute.is_splat else None
    return attribute


def _read(
    asm: Assembler,
    memories: Sequence[ir.Value],
    origin: TileOrigin,
    tile_vector: TileVector,
    operand: _Operand,
    values: dict[ir.Value, ir.Value],
) -> ir.Value:
    if isinstance(operand, ir.Attribute):
        return asm.splat(operand)
    if not isinstance(operand, Access):
        return values[operand]
    offset = origin.offset(asm, operand, tile_vector)
    memory = memories[operand.memory]
    return asm.broadcast(memory, offset) if operand.vector is None else asm.load(memory, offset, tile_vector.channels)


def emit_region(
    asm: Assembler, op: ir.Operation, inputs: Sequence[ir.Value], wanted: ir.Value | None = None
) -> ir.Value:
    """Emit the region of a ``linalg.generic`` on vectors; returns the first value that it yields, or ``wanted`` in it.

    Raises:
        RejectionError: if it uses what is neither an input nor a constant.
    """
    block = body_of(op)
    mapping = dict(zip(list(block.arguments)[: len(inputs)], inputs, strict=True))

    def known(value: ir.Value) -> ir.Value:
        if value not in mapping:
            mapping[value] = computed(value)
        return mapping[value]

    def computed(value: ir.Value) -> ir.Value:
        scalar, inner = constant_of(value), defining_op(value)
        if scalar is not None:
            return asm.splat(scalar)
        if inner is None or not inner.name.startswith(_VECTOR_DIALECTS):
            raise RejectionError("the region of an elementwise op uses a value that is not constant")
        return _on_vectors(asm, inner, [known(operand) for operand in inner.operands])

    return known(wanted if wanted is not None else list(block.operations)[-1].operation.operands[0])


def _on_vectors(asm: Assembler, op: ir.Operation, operands: list[ir.Value]) -> ir.Value:
    if op.name in _OWN and isinstance(op.results[0].type, ir.F32Type):
        return _OWN[op.name](asm, *operands)
    if op.name == "arith.select" and (clipped_value := clipped(asm, *operands)) is not None:
        return clipped_value
    attributes = {name: op.attributes[name] for name in op.attributes}
    kinds = [asm.vector_type(result.type) for result in op.results]
    result = ir.Operation.create(op.name, results=kinds, operands=operands, attributes=attributes).results[0]
    note(asm, op.name, result, operands)
    return result
