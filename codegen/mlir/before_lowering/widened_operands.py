"""Keeps IREE from widening operands of products inside the product's dispatch, where its code for Vulkan has a race.

A dispatch into which IREE clones what widens operands, such as casts from 8 bits, holds the wide ones in memory that a
workgroup shares. Each thread writes one element, and reads others' without a barrier in between
(docs/records/iree-notes.md). What is behind an optimisation barrier is not cloned, and becomes a dispatch of its own.
"""

from __future__ import annotations

from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import defining_op, is_elementwise, nested

# IREE clones slices with what widens, or takes the slices first. A part of a concatenation or of a padded tensor may
# become the tensor that was put there.
_MOVES = frozenset(
    {
        "linalg.broadcast",
        "linalg.transpose",
        "tensor.collapse_shape",
        "tensor.concat",
        "tensor.expand_shape",
        "tensor.extract_slice",
        "tensor.insert_slice",
        "tensor.pad",
    }
)
# IREE lowers it to an elementwise operation later.
_DEQUANTISES = "iree_linalg_ext.dequantize_affine"
_BARRIER = "util.optimization_barrier"
_TIE = "flow.tensor.tie_shape"
_DISPATCHES = ("flow.dispatch.region", "flow.executable", "hal.executable")


def widen_apart(module: ir.Module) -> None:
    """Put a barrier before each operand of a reducing operation that is computed from narrower elements, in place.

    Dispatches that are formed already stay as they are.
    """
    with module.context, ir.Location.unknown(module.context):
        for op in [inner for inner in nested(module.operation) if _reduces(inner) and not _is_dispatched(inner)]:
            # The last operand holds the initial values.
            for index, value in enumerate([*op.operands][:-1]):
                if _is_widened(value):
                    op.operands[index] = _behind_barrier(value, op)


def _behind_barrier(value: ir.Value, reader: ir.Operation) -> ir.Value:
    """A tensor behind a barrier before its reader, with its open sizes, which IREE does not look for in front of it."""
    if not isinstance(value.type, ir.RankedTensorType) or value.type.has_static_shape:
        return _created(_BARRIER, value.type, [value], reader)
    sizes = []
    for axis in range(value.type.rank):
        if value.type.is_dynamic_dim(axis):
            index = ir.IntegerAttr.get(ir.IndexType.get(), axis)
            number = _created("arith.constant", index.type, [], reader, {"value": index})
            sizes.append(_created("tensor.dim", index.type, [value, number], reader))
    return _created(_TIE, value.type, [_created(_BARRIER, value.type, [value], reader), *sizes], reader)


def _created(
    name: str,
    kind: ir.Type,
    operands: list[ir.Value],
    reader: ir.Operation,
    attributes: dict[str, ir.Attribute] | None = None,
) -> ir.Value:
    """The result of a new operation before the reader."""
    point = ir.InsertionPoint(reader)
    made = ir.Operation.create(name, [kind], operands, attributes or {}, loc=reader.location, ip=point)
    return made.results[0]


def drop_barriers(module: ir.Module) -> None:
    """Take the barriers away again, in place, once dispatches are formed: they would split the list of commands."""
    for op in [inner for inner in nested(module.operation) if inner.name == _BARRIER]:
        if isinstance(op.results[0].type, ir.RankedTensorType):
            op.results[0].replace_all_uses_with(op.operands[0])
            op.erase()


def _reduces(op: ir.Operation) -> bool:
    """Whether an operation of linalg on tensors is neither elementwise nor moves elements only."""
    is_linalg = op.name.startswith("linalg.") and len(op.results) > 0 and len(op.operands) > 1
    return is_linalg and op.name not in _MOVES and op.name != "linalg.fill" and not is_elementwise(op)


def _is_dispatched(op: ir.Operation) -> bool:
    around = op.parent
    while around is not None and around.name not in _DISPATCHES:
        around = around.operation.parent
    return around is not None


def _is_widened(value: ir.Value) -> bool:
    """Whether a tensor of narrower elements is read before ``value``, by operations that IREE may fuse."""
    bits = _bits(value)
    pending, seen = [value], set[ir.Value]()
    while pending:
        op = defining_op(pending.pop())
        if op is None or not (op.name in _MOVES or op.name == _DEQUANTISES or is_elementwise(op)):
            continue
        # The last operand of linalg is what the result is written to.
        read = [*op.operands] if op.name.startswith("tensor.") else [*op.operands][:-1]
        for operand in read:
            if isinstance(operand.type, ir.RankedTensorType) and operand not in seen:
                if _bits(operand) < bits:
                    return True
                seen.add(operand)
                pending.append(operand)
    return False


def _bits(value: ir.Value) -> int:
    element = (
        ir.RankedTensorType(value.type).element_type if isinstance(value.type, ir.RankedTensorType) else value.type
    )
    return int(element.width) if isinstance(element, (ir.IntegerType, ir.FloatType)) else 0
