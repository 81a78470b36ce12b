"""Products of more rows than a layer has, for instructions that multiply whole tiles."""

from __future__ import annotations

from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import defining_op, indexing_maps
from sartor.codegen.mlir.rewriting.chain import Chain
from sartor.codegen.mlir.rewriting.rewrite import Rewrite
from sartor.codegen.mlir.snippet import inline, tensor_parts, tensor_type

_ROWS = 0
"""The loop over rows, of a product and of what is elementwise around it."""


def pad_rows(rewrite: Rewrite, rows: int) -> None:
    """Let a flattened product, its initial value and the ops after it compute ``rows`` rows.

    What they read by rows is filled up with zeros, and the leading rows of the result take the result's place. The
    other rows may be anything, infinities included.

    Raises:
        RejectionError: if the layer's initial value is no broadcast.
    """
    with rewrite.module.context as context, ir.Location.unknown(context):
        chain = rewrite.chain
        result, shape = chain.result, tensor_parts(chain.result)[0]
        uses = [(use.owner.operation, use.operand_number) for use in result.uses]
        for op in chain.ops:
            _grow(op, chain, rows)
        block = [view.operation for view in chain.root.block.operations]
        point = ir.InsertionPoint(block[block.index(chain.ops[-1]) + 1])
        (leading,) = inline(_leading(result, shape), [result], point)
        for owner, number in uses:
            owner.operands[number] = leading


def _grow(op: ir.Operation, chain: Chain, rows: int) -> None:
    """Change the rows of what an op of the chain reads and computes; its producers in the chain have grown."""
    point = ir.InsertionPoint(op)
    for position, (operand, map_) in enumerate(zip(list(op.operands), indexing_maps(op), strict=True)):
        producer = defining_op(operand)
        loops = [result.position if isinstance(result, ir.AffineDimExpr) else None for result in map_.results]
        if _ROWS not in loops or (producer is not None and producer in chain.ops):
            continue
        grown = _grown(operand, loops.index(_ROWS), rows)
        if producer is not None and producer.name == "tensor.empty":
            text = (
                f"util.func private @room() -> {grown} {{\n%a = tensor.empty() : {grown}\nutil.return %a : {grown}\n}}"
            )
            (op.operands[position],) = inline(text, [], point)
        else:
            (op.operands[position],) = inline(_filled(operand, grown), [operand], point)
    op.results[0].set_type(ir.Type.parse(_grown(op.results[0], _ROWS, rows)))


def _grown(value: ir.Value, axis: int, rows: int) -> str:
    """The type of a tensor of more rows."""
    shape, element = tensor_parts(value)
    return tensor_type((*shape[:axis], rows, *shape[axis + 1 :]), element)


def _filled(value: ir.Value, grown: str) -> str:
    """MLIR of a function that fills a tensor up with zeros at its ends."""
    shape, element = tensor_parts(value)
    wanted = tuple(ir.RankedTensorType(ir.Type.parse(grown)).shape)
    high = [more - own for own, more in zip(shape, wanted, strict=True)]
    indices = ", ".join(f"%i{axis}: index" for axis in range(len(shape)))
    zero = "0.0" if "f" in element else "0"
    return f"""util.func private @fill(%value: {value.type}) -> {grown} {{
  %zero = arith.constant {zero} : {element}
  %filled = tensor.pad %value low{[0] * len(shape)} high{high} {{
  ^bb0({indices}):
    tensor.yield %zero : {element}
  }} : {value.type} to {grown}
  util.return %filled : {grown}
}}"""


def _leading(value: ir.Value, shape: tuple[int, ...]) -> str:
    """MLIR of a function that takes the beginning of a tensor."""
    kept = tensor_type(shape, tensor_parts(value)[1])
    slices = f"{[0] * len(shape)} {list(shape)} {[1] * len(shape)}"
    return f"""util.func private @leading(%value: {value.type}) -> {kept} {{
  %kept = tensor.extract_slice %value{slices} : {value.type} to {kept}
  util.return %kept : {kept}
}}"""
