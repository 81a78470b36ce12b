"""The initial value of a reduction: zero, a scalar, one number per column, or a tensor."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import copies, defining_op, indexing_maps, is_elementwise
from sartor.codegen.mlir.snippet import inline, tensor_parts

_RESHAPES = frozenset({"tensor.collapse_shape", "tensor.expand_shape"})


@dataclass(frozen=True)
class Initial:
    """An initial value: a scalar, a vector along the last dimension of the result, or a tensor of its shape."""

    value: ir.Value

    @property
    def is_zero(self) -> bool:
        """Whether it is a constant zero."""
        op = defining_op(self.value)
        if op is None or op.name != "arith.constant":
            return False
        attribute = op.attributes["value"]
        return isinstance(attribute, (ir.FloatAttr, ir.IntegerAttr)) and attribute.value == 0

    @property
    def _rank(self) -> int:
        return ir.RankedTensorType(self.value.type).rank if isinstance(self.value.type, ir.RankedTensorType) else 0

    def broadcast(self, result: ir.Type, before: ir.Operation) -> ir.Value:
        """A tensor of type ``result`` with this value broadcast, computed before an op."""
        return self._map(result, [], "linalg.yield %in : {element}", before)

    def added_to(self, value: ir.Value, before: ir.Operation) -> ir.Value:
        """``value`` plus this value, computed before an op."""
        if self.is_zero:
            return value
        add = "arith.addf" if "f" in tensor_parts(value)[1] else "arith.addi"
        body = f"%sum = {add} %in, %other : {{element}}\n  linalg.yield %sum : {{element}}"
        return self._map(value.type, [value], body, before)

    def _map(self, result: ir.Type, others: list[ir.Value], body: str, before: ir.Operation) -> ir.Value:
        """An elementwise op over this value and tensors of type ``result``."""
        tensor = ir.RankedTensorType(result)
        rank, element = tensor.rank, str(tensor.element_type)
        loops = ", ".join(f"d{loop}" for loop in range(rank))
        mine = {0: "", 1: f"d{rank - 1}"}.get(self._rank, loops)
        names = ["%value", *(f"%other{index}" for index in range(len(others)))]
        types = [str(self.value.type), *([str(result)] * len(others))]
        maps = [mine, *([loops] * (len(others) + 1))]
        arguments = ", ".join(f"{name}: {type_text}" for name, type_text in zip(names, types, strict=True))
        scalars = ["%in", *(["%other"] * len(others)), "%out"]
        text = f"""util.func private @map({arguments}) -> {result} {{
  %empty = tensor.empty() : {result}
  %result = linalg.generic {{
      indexing_maps = [{", ".join(f"affine_map<({loops}) -> ({expr})>" for expr in maps)}],
      iterator_types = [{", ".join(['"parallel"'] * rank)}]}}
      ins({", ".join(names)} : {", ".join(types)}) outs(%empty : {result}) {{
  ^bb0({", ".join(f"{name}: {element}" for name in scalars)}):
  {body.format(element=element)}
  }} -> {result}
  util.return %result : {result}
}}"""
        (mapped,) = inline(text, [self.value, *others], ir.InsertionPoint(before))
        return mapped


def initial_of(root: ir.Operation) -> Initial:
    """The initial value of ``root``, followed back through broadcasts and reshapes."""
    tensor = root.operands[len(root.operands) - 1]
    value = tensor
    while (op := defining_op(value)) is not None and op.name in _RESHAPES:
        value = op.operands[0]
    broadcast = _splat(value, root) or _broadcast_operand(value)
    columns = tensor_parts(tensor)[0][-1:]
    if broadcast is None:
        return Initial(tensor)
    if isinstance(broadcast.type, ir.RankedTensorType) and tensor_parts(broadcast)[0] != columns:
        return Initial(tensor)
    return Initial(broadcast)


def _splat(value: ir.Value, root: ir.Operation) -> ir.Value | None:
    """The scalar that a constant repeats, as a constant before ``root``, or None."""
    op = defining_op(value)
    if op is None or op.name != "arith.constant":
        return None
    attribute = op.attributes["value"]
    if not (isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat):
        return None
    scalar = attribute.get_splat_value()
    results = [ir.RankedTensorType(value.type).element_type]
    return ir.Operation.create(
        "arith.constant", results=results, attributes={"value": scalar}, ip=ir.InsertionPoint(root)
    ).results[0]


def _broadcast_operand(value: ir.Value) -> ir.Value | None:
    """The scalar or vector that ``value`` repeats along all but its last dimension, or None."""
    op = defining_op(value)
    if op is None or not copies(op):
        return None
    source, target = (list(indexing_map.results) for indexing_map in indexing_maps(op))
    return op.operands[0] if source in ([], target[-1:]) else None


def simplify_initial(root: ir.Operation) -> None:
    """Make the initial value of ``root`` one elementwise op of its own shape."""
    with root.context, ir.Location.unknown(root.context):
        last = len(root.operands) - 1
        root.operands[last] = initial_of(root).broadcast(root.results[0].type, root)


def make_elementwise(root: ir.Operation) -> None:
    """Do so if the initial value is no elementwise op, but an argument or a reshaped value."""
    initial = defining_op(root.operands[len(root.operands) - 1])
    if initial is None or not is_elementwise(initial):
        simplify_initial(root)
