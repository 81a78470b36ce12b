"""Look-ups of columns in weights of floats that are packed for products, so that both read one storage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.packing import Packing, Reshape, Step, Transpose, cut
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected
from sartor.codegen.ir.variants.traits import LOWERED, Traits
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.machine import machine_of
from sartor.codegen.mlir.operations import body_of, nested
from sartor.codegen.mlir.rewriting.rewrite import Rewrite, rewritten
from sartor.codegen.subgraphs.encoded_look_ups import COLUMNS


@dataclass(frozen=True)
class LookedUpTables:
    """IREE's code for a look-up of columns in panels, the form that products by f32 read, or in rows.

    Parameters: ``lanes`` of a vector.

    Attributes:
        vectors: of a panel, 0 for a table of rows. Each number is a routine of its own, as the product decides which
            is needed.
    """

    vectors: int

    @property
    def name(self) -> str:
        """The algorithm in descriptors."""
        return f"floats_of_{self.vectors}" if self.vectors else "rows_of_floats"

    @property
    def traits(self) -> Traits:
        return replace(LOWERED, family="columns_of_panels")

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        if COLUMNS not in task.body:
            return Rejected("it looks nothing up in the weight of a product")
        if not target.is_cpu:
            return Rejected("products read packed weights on a CPU only")
        return [{"lanes": machine_of(target).lanes}]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        lanes = parameters["lanes"]
        assert isinstance(lanes, int)
        return rewritten(Rewrite.plain(task), partial(_pack, width=lanes * self.vectors), target)


def _pack(rewrite: Rewrite, width: int) -> None:
    """Look up in packed weights instead.

    Raises:
        RejectionError: if the layer reads such a weight in another way, too.
    """
    views = list(body_of(rewrite.function).operations)
    ops = [view.operation for view in views if COLUMNS in view.operation.attributes]
    readers = [child for op in ops for child in nested(op) if child.name == "tensor.extract"]
    for weight in {rewrite.weight_index(reader.operands[0]): reader.operands[0] for reader in readers}.items():
        place, value = weight
        if place is None or len(list(value.uses)) != sum(reader.operands[0] == value for reader in readers):
            raise RejectionError("another op reads the weight")
        _pack_weight(rewrite, place, [reader for reader in readers if reader.operands[0] == value], width)


def _pack_weight(rewrite: Rewrite, place: int, readers: list[ir.Operation], width: int) -> None:
    kind = rewrite.task.weights[place]
    depth, columns = kind.shape[-2:]
    steps: list[Step] = [Reshape((depth, columns))] if len(kind.shape) > 2 else []
    steps += cut(((depth,), (-(-columns // width), width)), (1, 0, 2)) if width else [Transpose((1, 0))]
    rewrite.pack(place, steps, str(Packing(tuple(steps)).type_of(kind)))
    with rewrite.module.context:
        for reader in readers:
            *_, row, column = reader.operands
            source, before = reader.operands[0], ir.InsertionPoint(reader)
            places = [column, row] if not width else _in_panel(reader, row, column, width)
            types = [reader.results[0].type]
            extracted = ir.Operation.create("tensor.extract", types, [source, *places], ip=before, loc=reader.location)
            reader.results[0].replace_all_uses_with(extracted.results[0])
            reader.erase()


def _in_panel(reader: ir.Operation, row: ir.Value, column: ir.Value, width: int) -> list[ir.Value]:
    """The panel, the row and the column in the panel."""
    kind, before, location = ir.IndexType.get(), ir.InsertionPoint(reader), reader.location
    attributes = {"value": ir.IntegerAttr.get(kind, width)}
    by = ir.Operation.create("arith.constant", [kind], attributes=attributes, ip=before, loc=location).results[0]
    panel, inside = (
        ir.Operation.create(name, [kind], [column, by], ip=before, loc=location).results[0]
        for name in ("arith.divui", "arith.remui")
    )
    return [panel, row, inside]
