"""Look-ups of columns in weights that are packed for products, so that both read one storage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from sartor.codegen.ir.encoding import BlockEncoding
from sartor.codegen.ir.layer import Task, TensorType
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected
from sartor.codegen.ir.variants.traits import LOWERED, Traits
from sartor.codegen.kernels.encoded.packed_blocks import PackedBlocks
from sartor.codegen.mlir.gpu_machine import gpu_machine
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.machine import machine_of
from sartor.codegen.mlir.operations import body_of, nested
from sartor.codegen.mlir.rewriting.rewrite import Rewrite, rewritten
from sartor.codegen.subgraphs.declared_calls import inline
from sartor.codegen.subgraphs.encoded_look_ups import ATTRIBUTE, LookUp


@dataclass(frozen=True)
class LookedUpColumns:
    """IREE's code for a look-up in panels, the form that kernels of products read.

    Parameters: ``lanes`` of a vector.

    Attributes:
        vectors: of a panel. Each number is a routine of its own, as the product decides which is needed.
    """

    vectors: int

    @property
    def name(self) -> str:
        """The algorithm in descriptors."""
        return f"columns_of_{self.vectors}"

    @property
    def traits(self) -> Traits:
        return replace(LOWERED, family="columns_of_panels")

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        if f"{ATTRIBUTE} = " not in task.body:
            return Rejected("it looks nothing up in a weight in blocks of integers")
        machine = machine_of(target) if target.is_cpu else gpu_machine(target)
        return [{"lanes": machine.lanes}]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        lanes = parameters["lanes"]
        assert isinstance(lanes, int)
        return rewritten(Rewrite.plain(task), partial(_pack, lanes=lanes, vectors=self.vectors), target)


def _pack(rewrite: Rewrite, lanes: int, vectors: int) -> None:
    """Look up in a packed weight instead.

    Raises:
        RejectionError: if the layer reads the weight in another way, too.
    """
    block = body_of(rewrite.function)
    marked = [view.operation for view in block.operations if ATTRIBUTE in view.operation.attributes]
    if len(marked) != 1:
        raise RejectionError("the layer looks up in several weights")
    (op,) = marked
    encoding = BlockEncoding.parse(ir.StringAttr(op.attributes[ATTRIBUTE]).value)
    sources = [child.operands[0] for child in nested(op) if child.name == "tensor.extract"]
    places = [rewrite.weight_index(source) for source in sources]
    known = [place for place in places if place is not None]
    if len(known) != len(places):
        raise RejectionError("another op reads the weight in blocks of integers")
    blocks = PackedBlocks(encoding, lanes, vectors)
    kinds = []
    for place, packing in zip(known, blocks.packings(len(known)), strict=True):
        kinds.append(packing.type_of(rewrite.task.weights[place]))
        rewrite.pack(place, packing.steps, str(kinds[-1]))
    indices, result = (TensorType.parse(str(value.type)) for value in (op.operands[0], op.results[0]))
    look_up = LookUp(encoding, indices, tuple(kinds), result, blocks.width)
    with rewrite.module.context, op.location:
        inline(op, look_up.function(str(op.location)), [op.operands[0], *sources])
