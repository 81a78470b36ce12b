"""A product whose operands and result are stored in a narrower type, and whose sums stay in f32."""

from __future__ import annotations

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.mlir.element_types import conversion_function
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import body_of, defining_op, moves
from sartor.codegen.mlir.rewriting.chain import Chain
from sartor.codegen.mlir.rewriting.rewrite import Rewrite
from sartor.codegen.mlir.snippet import inline, tensor_parts, tensor_type

_RESHAPES = frozenset({"tensor.collapse_shape", "tensor.expand_shape"})
_PAD, _SLICE = "tensor.pad", "tensor.extract_slice"


def narrow_operand(value: ir.Value, dtype: str) -> ir.Value:
    """Change a value, of which there is one use, and what it is a reshape, padding or copy of to a narrower type.

    Returns:
        The argument that it is.

    Raises:
        RejectionError: if it is used elsewhere, or computed.
    """
    if len(list(value.uses)) != 1:
        raise RejectionError("an operand has other uses")
    op = defining_op(value)
    if op is not None and op.name == _PAD:
        _narrow_padding(op, dtype)
    elif op is not None and moves(op):
        _narrow_copy(op, dtype)
    elif op is not None and op.name not in _RESHAPES:
        raise RejectionError("an operand is computed in the layer")
    value.set_type(ir.Type.parse(tensor_type(tensor_parts(value)[0], dtype)))
    return value if op is None else narrow_operand(op.operands[0], dtype)


def _narrow_padding(pad: ir.Operation, dtype: str) -> None:
    """Change what a padding is filled with.

    Raises:
        RejectionError: if that is no constant.
    """
    block = pad.regions[0].blocks[0]
    end = block.operations[len(block.operations) - 1].operation
    filling = defining_op(end.operands[0])
    if filling is None or filling.name != "arith.constant":
        raise RejectionError("the padding is not constant")
    narrow = ir.Type.parse(dtype)
    number = ir.FloatAttr.get(narrow, ir.FloatAttr(filling.attributes["value"]).value)
    point = ir.InsertionPoint(pad)
    constant = ir.Operation.create("arith.constant", results=[narrow], attributes={"value": number}, ip=point)
    end.operands[0] = constant.results[0]


def _narrow_copy(copy: ir.Operation, dtype: str) -> None:
    """Change the tensor that a copy writes to, and the numbers that it copies."""
    empty = copy.operands[1]
    empty.set_type(ir.Type.parse(tensor_type(tensor_parts(empty)[0], dtype)))
    for argument in body_of(copy).arguments:
        argument.set_type(ir.Type.parse(dtype))


def widen_factors(root: ir.Operation) -> None:
    """Let a reduction's body widen both of its factors, whose operands have become narrower."""
    block = body_of(root)
    for argument, operand in zip(list(block.arguments)[:2], list(root.operands)[:2], strict=True):
        wide = argument.type
        uses = [(use.owner.operation, use.operand_number) for use in argument.uses]
        argument.set_type(ir.RankedTensorType(operand.type).element_type)
        point = ir.InsertionPoint.at_block_begin(block)
        extended = ir.Operation.create("arith.extf", results=[wide], operands=[argument], ip=point).results[0]
        for owner, number in uses:
            owner.operands[number] = extended


def widen_others(rewrite: Rewrite, chain: Chain, dtype: str) -> list[ir.Operation]:
    """Store the activations that elementwise ops read, as a residual or a computed bias is, in the narrower type.

    Returns:
        Ops that widen them.

    Raises:
        RejectionError: if one of them has other uses, or an activation is read by other ops too.
    """
    arguments = list(body_of(rewrite.function).arguments)[: len(rewrite.task.inputs)]
    made: list[ir.Operation] = []
    for reader in (op for op in chain.ops if op != chain.root):
        for position, operand in enumerate(reader.operands):
            source = operand
            while (op := defining_op(source)) is not None and op.name in {*_RESHAPES, _PAD}:
                source = op.operands[0]
            if source not in arguments:
                continue
            wide = TensorType.parse(str(operand.type))
            narrow_operand(operand, dtype)
            ops = _inserted(operand, wide, ir.InsertionPoint(chain.ops[0]))
            reader.operands[position] = ops[-1].results[0]
            made += ops
    if any(tensor_parts(argument)[1] != dtype for argument in arguments):
        raise RejectionError("an activation is read outside the product and the elementwise ops around it")
    return made


def round_result(chain: Chain, dtype: str) -> list[ir.Operation]:
    """Ops that round the result; what returns it, perhaps sliced or reshaped, gets the narrower type.

    Raises:
        RejectionError: if other ops use it.
    """
    result = chain.result
    uses = [(use.owner.operation, use.operand_number) for use in result.uses]
    block = [view.operation for view in chain.root.block.operations]
    point = ir.InsertionPoint(block[block.index(chain.ops[-1]) + 1])
    made = _inserted(result, TensorType(tuple(tensor_parts(result)[0]), dtype), point)
    for owner, number in uses:
        owner.operands[number] = made[-1].results[0]
        while owner.name in {*_RESHAPES, _SLICE}:
            shaped = owner.results[0]
            shaped.set_type(ir.Type.parse(tensor_type(tensor_parts(shaped)[0], dtype)))
            (owner,) = (use.owner.operation for use in shaped.uses)
        if owner.name != "util.return":
            raise RejectionError("the product's result is used by other ops")
    return made


def _inserted(value: ir.Value, wanted: TensorType, point: ir.InsertionPoint) -> list[ir.Operation]:
    """Ops that convert a value, the last of which has the result."""
    (converted,) = inline(conversion_function(TensorType.parse(str(value.type)), wanted), [value], point)
    last = converted.owner.operation if hasattr(converted.owner, "operation") else converted.owner
    outputs = [defining_op(operand) for operand in last.operands]
    return [*(output for output in outputs if output is not None and output.name == "tensor.empty"), last]
