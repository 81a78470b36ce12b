"""Lowerings with activations and results stored in a narrower type than they compute in, which moves fewer bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sartor.codegen.ir.layer import F32, LayerKind, Task, TensorType
from sartor.codegen.ir.schema import RANGE, physical_types, ranges_of
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected, Routine
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.mlir.element_types import conversion_function
from sartor.codegen.mlir.iree_compiler import ir, shared_context
from sartor.codegen.mlir.operations import body_of
from sartor.codegen.mlir.snippet import inline

MULTIPLYING = (LayerKind.CONVOLUTION, LayerKind.DEPTHWISE, LayerKind.CONTRACTION)
"""Kinds of layers that have their own routines in narrower types."""


@dataclass(frozen=True)
class Stored:
    """A lowering that widens what it reads and rounds what it writes; IREE fuses both into its loops.

    Results in 8 bits share one range.

    Attributes:
        lowering: the routine that computes in ONNX's type.
        storage: the narrower type.
    """

    lowering: Routine
    storage: str | None = "bf16"

    @property
    def name(self) -> str:
        """The algorithm in descriptors."""
        return self.lowering.name

    @property
    def traits(self) -> Traits:
        """The lowering's traits, with the narrower type as precision."""
        return replace(self.lowering.traits, precision=self.storage, opens=False)

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        """The lowering's parameter sets, or why the routine does not apply."""
        if task.kind in MULTIPLYING:
            return Rejected("layers that multiply have their own routines in this type")
        if not all(result.is_f32 for result in task.results):
            return Rejected("its results are not all f32")
        return self.lowering.parameters(task, target)

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        """The lowering's code with conversions around it."""
        built = self.lowering.build(task, parameters, target)
        return built if isinstance(built, Rejected) else stored(task, built, self.storage or F32)


def stored(task: Task, implementation: Implementation, storage: str, *, reads: bool = True) -> Implementation:
    """An implementation with its results, and if ``reads`` its f32 activations, stored as ``storage``."""
    inputs = tuple(
        schema.stored_as(storage) if reads and tensor.is_f32 else schema
        for tensor, schema in zip(task.inputs, implementation.inputs, strict=True)
    )
    outputs = tuple(output.stored_as(storage) for output in implementation.outputs)
    ranges = ranges_of((*task.inputs, *task.results), (*inputs, *outputs), len(outputs))
    with shared_context() as context, ir.Location.unknown(context):
        module = ir.Module.parse(implementation.body)
        function = module.body.operations[0].operation
        block = body_of(function)
        numbers = {
            position: block.add_argument(ir.Type.parse(str(RANGE)), ir.Location.unknown()) for position in ranges
        }
        _widen(block, physical_types(task.inputs, inputs), numbers)
        _round(
            block,
            physical_types(task.results, outputs),
            numbers.get(None),
        )
        returned = list(block.operations)[-1].operation.operands
        signature = ir.FunctionType.get(
            [argument.type for argument in block.arguments], [value.type for value in returned]
        )
        function.attributes["function_type"] = ir.TypeAttr.get(signature)
        module.operation.verify()
        body = str(function.get_asm(use_local_scope=True))
    return replace(implementation, body=body, inputs=inputs, outputs=outputs, ranges=ranges)


def _widen(block: ir.Block, types: list[TensorType], numbers: Mapping[int | None, ir.Value]) -> None:
    """Change arguments to the types that they are stored in; ``numbers`` are the ranges of quantised ones, by
    position."""
    for position, (argument, kind) in enumerate(zip(list(block.arguments), types, strict=False)):
        wide = TensorType.parse(str(argument.type))
        if wide == kind:
            continue
        uses = [(use.owner, use.operand_number) for use in argument.uses]
        argument.set_type(ir.Type.parse(str(kind)))
        operands = [argument, *([numbers[position]] if position in numbers else [])]
        (value,) = inline(conversion_function(kind, wide), operands, ir.InsertionPoint.at_block_begin(block))
        for owner, number in uses:
            owner.operation.operands[number] = value


def _round(block: ir.Block, types: list[TensorType], numbers: ir.Value | None) -> None:
    """Change results to the types that they are stored in; ``numbers`` is their range if they are quantised."""
    terminator = list(block.operations)[-1].operation
    for index, kind in enumerate(types):
        value = terminator.operands[index]
        wide = TensorType.parse(str(value.type))
        operands = [value, *([numbers] if numbers is not None else [])]
        (narrow,) = inline(conversion_function(wide, kind), operands, ir.InsertionPoint(terminator))
        terminator.operands[index] = narrow
