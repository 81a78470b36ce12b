"""Whether a layer's result is rounded to multiples of a step, as a pair of QuantizeLinear and DequantizeLinear does."""

from __future__ import annotations

import functools

from sartor.codegen.ir.layer import Task
from sartor.codegen.mlir.iree_compiler import ir, shared_context
from sartor.codegen.mlir.operations import body_of, defining_op, used_values

_ROUND = "math.roundeven"
_SATURATING = {"arith.cmpf", "arith.select", "arith.maximumf", "arith.minimumf", "linalg.yield"}
_MOVING = {"tensor.collapse_shape", "tensor.expand_shape", "linalg.transpose"}
_PRODUCT = ["arith.mulf", "linalg.yield"]


def rounds(task: Task) -> bool:
    """Whether a layer rounds anything to integers."""
    return _ROUND in task.body


@functools.lru_cache(maxsize=1024)
def steps_of(task: Task) -> tuple[float, ...]:
    """The constants by which a layer multiplies rounded integers, in program order."""
    if not rounds(task):
        return ()
    with shared_context():
        module = ir.Module.parse(task.body)
        ops = [view.operation for view in body_of(module.body.operations[0].operation).operations]
        return tuple(step for op in ops if (step := _factor(op)) is not None and _is_rounded(op.operands[0]))


@functools.lru_cache(maxsize=1024)
def step_of(task: Task) -> float | None:
    """The constant that the last op of a layer multiplies by; None if the layer rounds nothing or ends otherwise.

    Code that stores the result in 8 bits may store the integers before that op, if this constant is the scale of the
    result's range.
    """
    if not rounds(task):
        return None
    with shared_context():
        module = ir.Module.parse(task.body)
        (result, *_) = list(body_of(module.body.operations[0].operation).operations)[-1].operation.operands
        op = defining_op(result)
        while op is not None and op.name in _MOVING:
            op = defining_op(op.operands[0])
        return None if op is None else _factor(op)


def _is_rounded(value: ir.Value) -> bool:
    """Whether a value is rounded to integers, and perhaps saturated."""
    op = defining_op(value)
    if op is None or op.name != "linalg.generic":
        return False
    names = {operation.operation.name for operation in body_of(op).operations}
    return _ROUND in names or (names <= _SATURATING and _is_rounded(op.operands[0]))


def _factor(op: ir.Operation) -> float | None:
    """The constant of an op that only multiplies its operand by it; None for other ops."""
    if op.name != "linalg.generic" or [operation.operation.name for operation in body_of(op).operations] != _PRODUCT:
        return None
    constants = [
        constant
        for used_value in used_values(op)
        if (constant := defining_op(used_value)) and constant.name == "arith.constant"
    ]
    numbers = [_number(constant.attributes["value"]) for constant in constants]
    return next((number for number in numbers if number is not None), None)


def _number(attribute: ir.Attribute) -> float | None:
    """The one float that a constant holds."""
    if isinstance(attribute, ir.DenseElementsAttr):
        if not attribute.is_splat:
            return None
        attribute = attribute.get_splat_value()
    return float(ir.FloatAttr(attribute).value) if isinstance(attribute, ir.FloatAttr) else None
