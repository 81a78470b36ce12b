"""Small queries on MLIR operations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from sartor.codegen.mlir.iree_compiler import ir

Reads = Callable[[ir.Operation], Sequence[ir.Value]]
"""Finds what an operation reads, as ``used_values`` does."""


def entry_function(module: ir.Module) -> ir.Operation:
    """The function that computes the network, not its synchronous wrapper."""
    functions = [op.operation for op in module.body.operations if op.operation.name == "util.func"]
    return next(op for op in functions if symbol(op).endswith("$async"))


def symbol(op: ir.Operation) -> str:
    return str(ir.StringAttr(op.attributes["sym_name"]).value)


def body_of(function: ir.Operation) -> ir.Block:
    return function.regions[0].blocks[0]


def nested(op: ir.Operation) -> Iterator[ir.Operation]:
    """``op`` and every op inside its regions, in order."""
    yield op
    if len(op.regions):
        for region in op.regions:
            for block in region.blocks:
                for view in block.operations:
                    inner = view.operation
                    if len(inner.regions):
                        yield from nested(inner)
                    else:
                        yield inner


def used_values(op: ir.Operation) -> list[ir.Value]:
    """Operands of ``op``, then values its regions capture from outside, each once."""
    values = dict.fromkeys(op.operands)
    # Most ops have no regions, and each call into MLIR takes a microsecond.
    if len(op.regions):
        inner: set[ir.Value] = set()
        for child in nested(op):
            for region in child.regions:
                for block in region.blocks:
                    inner.update(block.arguments)
            if child != op:
                inner.update(child.results)
                values.update(dict.fromkeys(child.operands))
        return [value for value in values if value not in inner]
    return list(values)


def remap(op: ir.Operation, mapping: Mapping[ir.Value, ir.Value]) -> None:
    """Replace every use of a key by its value in ``op`` and its regions."""
    for child in nested(op):
        for index, value in enumerate(child.operands):
            if value in mapping:
                child.operands[index] = mapping[value]


def defining_op(value: ir.Value) -> ir.Operation | None:
    """The op whose result ``value`` is; None for a block argument."""
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation


def source(value: ir.Value) -> ir.Operation:
    """The op whose result ``value`` is; ``value`` must not be an argument."""
    return value.owner.operation


def is_static_tensor(value: ir.Value) -> bool:
    """Whether a value is a tensor all of whose dimensions are known."""
    return isinstance(value.type, ir.RankedTensorType) and ir.RankedTensorType(value.type).has_static_shape


def is_elementwise(op: ir.Operation) -> bool:
    """A linalg.generic that maps every output element from the same or broadcast input elements."""
    if op.name != "linalg.generic" or len(op.results) != 1:
        return False
    kinds = [str(kind) for kind in ir.ArrayAttr(op.attributes["iterator_types"])]
    if any("parallel" not in kind for kind in kinds):
        return False
    maps = indexing_maps(op)
    rank = len(kinds)
    identity = ir.AffineMap.get_identity(rank, context=op.context)
    simple = all(isinstance(expr, _DIM_OR_CONSTANT) for map_of_operand in maps for expr in map_of_operand.results)
    return maps[-1] == identity and simple and not any(child.name == "tensor.extract" for child in nested(op))


def keeps_order(indexing: ir.AffineMap, shape: tuple[int, ...]) -> bool:
    """Whether each element is read where it is computed; along a dimension of one element any index does."""
    return len(indexing.results) == len(shape) and all(
        size == 1 or (isinstance(expr, ir.AffineDimExpr) and expr.position == axis)
        for axis, (expr, size) in enumerate(zip(indexing.results, shape, strict=True))
    )


def copies(op: ir.Operation) -> bool:
    """Whether an op is elementwise and yields the elements of its one operand, each once or repeatedly."""
    return is_elementwise(op) and moves(op)


def moves(op: ir.Operation) -> bool:
    """Whether an op yields the elements of its one operand from anywhere, as those of overlapping windows."""
    if op.name != "linalg.generic" or len(op.operands) != 2 or len(body_of(op).operations) != 1:
        return False
    if any("parallel" not in str(kind) for kind in ir.ArrayAttr(op.attributes["iterator_types"])):
        return False
    (given,) = body_of(op).operations[0].operation.operands
    return bool(given == body_of(op).arguments[0])


_DIM_OR_CONSTANT = (ir.AffineDimExpr, ir.AffineConstantExpr)


def indexing_maps(op: ir.Operation) -> list[ir.AffineMap]:
    """Indexing maps of a linalg.generic, one per operand."""
    return [ir.AffineMapAttr(attribute).value for attribute in ir.ArrayAttr(op.attributes["indexing_maps"])]


def loop_sizes(op: ir.Operation) -> list[int]:
    """Trip count of every loop of a linalg.generic, read off the operands indexed by the loop alone; 0 if unknown."""
    sizes = [0] * len(ir.ArrayAttr(op.attributes["iterator_types"]))
    for value, indexing_map in zip(op.operands, indexing_maps(op), strict=True):
        if not isinstance(value.type, ir.RankedTensorType):
            continue
        for size, expr in zip(ir.RankedTensorType(value.type).shape, indexing_map.results, strict=True):
            if isinstance(expr, ir.AffineDimExpr):
                sizes[expr.position] = size
    return sizes


def node_names(ops: Iterable[ir.Operation]) -> tuple[str, ...]:
    """ONNX nodes that ``ops`` were lowered from, in order, each once."""
    names = (name for op in ops for name in names_in(_location_text(op)))
    return tuple(dict.fromkeys(name for name in names if name and not name.startswith("graph:")))


def names_in(text: str) -> list[str]:
    """What is quoted in a location or in the diagnostic of one."""
    return [_unescaped(name) for name in re.findall(r'"((?:[^"\\]|\\.)*)"', text)]


def _unescaped(text: str) -> str:
    """Undo the escapes of a string in MLIR, which has two hexadecimal digits for each byte that is no plain ASCII."""
    plain = re.sub(rb"\\(\\|[0-9A-F]{2})", _unescaped_byte, text.encode())
    return plain.decode(errors="replace")


def _unescaped_byte(match: re.Match[bytes]) -> bytes:
    escaped = match.group(1)
    return escaped if escaped == b"\\" else bytes.fromhex(escaped.decode())


def _location_text(op: ir.Operation) -> str:
    """The location without file positions, whose file names would look like node names."""
    return re.sub(r'"[^"]*":\d+:\d+(?: to :?\d*:?\d+)?', "", str(op.location))
