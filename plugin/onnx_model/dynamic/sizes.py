"""Sizes that are computed when the model runs: Shape of counted values, and arithmetic with its results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from onnx import TensorProto

from sartor.onnx_model.dynamic.steps import Count, Size, Steps
from sartor.onnx_model.graphs.graph import Array, attributes
from sartor.onnx_model.operator_types.moving import RESHAPING


def shape_of(steps: Steps) -> None:
    """The true shape of a counted value, as a vector of constants and its count."""
    node, settings = steps.node, attributes(steps.node)
    counted = steps.tail.counted[node.input[0]]
    sizes: list[Size] = list(steps.shape(node.input[0]))
    sizes[counted.axis] = counted.count
    sizes = sizes[settings.get("start", 0) : settings.get("end")]
    steps.tail.sizes[node.output[0]] = tuple(sizes)
    parts = [
        steps.reshaped(size.name, 1) if isinstance(size, Count) else steps.constant([size], "size") for size in sizes
    ]
    steps("Concat", *parts, axis=0, output=node.output[0])


def size_of(steps: Steps) -> None:
    """The number of valid elements."""
    node = steps.node
    counted = steps.tail.counted[node.input[0]]
    shape = steps.shape(node.input[0])
    others = int(np.prod([size for axis, size in enumerate(shape) if axis != counted.axis], dtype=np.int64))
    steps("Mul", counted.count.name, steps.scalar(others), output=node.output[0])
    steps.tail.sizes[node.output[0]] = (Count(node.output[0], others * counted.count.bound),)


def known_sizes(steps: Steps, name: str) -> tuple[Size, ...] | None:
    """The elements of a value of integers, if each is a constant or a size; None for other values."""
    constant = steps.editor.constant(name)
    if constant is None:
        return steps.tail.sizes.get(name)
    is_small = constant.ndim <= 1 and constant.dtype.kind in "iu"
    return tuple(int(number) for number in constant.reshape(-1)) if is_small else None


def track(steps: Steps) -> None:
    """Note the sizes in a result that is computed from sizes by the kept node."""
    node = steps.node
    if node.op_type == "ReduceSum" and (count := _true_elements(steps)) is not None:
        steps.tail.sizes[node.output[0]] = (count,)
        return
    rule = _RULES.get(node.op_type)
    operands = [known_sizes(steps, name) if name else None for name in node.input]
    is_used = any(name in steps.tail.sizes for name in node.input)
    if rule is None or not is_used or operands[0] is None:
        return
    tracked = rule(steps, operands)
    if tracked is not None:
        steps.tail.sizes[node.output[0]] = tracked


def _true_elements(steps: Steps) -> Count | None:
    """The count that a sum over all of a mask is, whose true elements are selected elsewhere."""
    editor, name = steps.editor, steps.node.input[0]
    result = editor.shape(steps.node.output[0])
    # A sum in a narrow type may overflow.
    is_wide = editor.element_type(name) in (TensorProto.INT64, TensorProto.INT32)
    if result is None or math.prod(result) != 1 or not is_wide:
        return None
    while (node := editor.producer(name)) is not None and node.op_type in _OF_SAME_ELEMENTS and not node.domain:
        name = node.input[0]
    is_mask = editor.element_type(name) == TensorProto.BOOL
    return steps.tail.true_elements.get(name) if is_mask else None


_OF_SAME_ELEMENTS = RESHAPING | {"Cast"}
_Operands = list[tuple[Size, ...] | None]
_Found = tuple[Size, ...] | None


def _same(steps: Steps, operands: _Operands) -> _Found:
    return operands[0]


def _array(steps: Steps, name: str, sizes: tuple[Size, ...] | None) -> Array | None:
    """The elements of a value in its shape."""
    shape = steps.editor.shape(name)
    if sizes is None or shape is None:
        return None
    array = np.empty(len(sizes), np.object_)
    array[:] = sizes
    return array.reshape(shape)


def _elements(array: object) -> tuple[Size, ...]:
    return tuple(np.asarray(array, np.object_).reshape(-1))


def _cast(steps: Steps, operands: _Operands) -> _Found:
    integers = (TensorProto.INT64, TensorProto.INT32)
    return operands[0] if attributes(steps.node)["to"] in integers else None


def _gathered(steps: Steps, operands: _Operands) -> _Found:
    indices = steps.editor.constant(steps.node.input[1])
    whole = _array(steps, steps.node.input[0], operands[0])
    if indices is None or whole is None:
        return None
    return _elements(whole.take(indices, attributes(steps.node).get("axis", 0)))


def _joined(steps: Steps, operands: _Operands) -> _Found:
    arrays = [_array(steps, name, sizes) for name, sizes in zip(steps.node.input, operands, strict=True)]
    known = [array for array in arrays if array is not None]
    return _elements(np.concatenate(known, attributes(steps.node)["axis"])) if len(known) == len(operands) else None


def _sliced(steps: Steps, operands: _Operands) -> _Found:
    bounds = [steps.editor.constant(name) for name in steps.node.input[1:3]]
    if operands[0] is None or len(steps.node.input) > 4 or any(bound is None or bound.size != 1 for bound in bounds):
        return None
    if steps.editor.rank(steps.node.input[0]) != 1:
        return None
    first, end = (int(bound.item()) for bound in bounds if bound is not None)
    return operands[0][first:end]


def _computed(number: Callable[[int, int], int]) -> Callable[[Steps, _Operands], _Found]:
    """The bound of a result from the bounds of two numbers, of which it is a rising function."""

    def rule(steps: Steps, operands: _Operands) -> _Found:
        left, right = operands
        if left is None or right is None or len(left) != 1 or len(right) != 1:
            return None
        bounds = [size.bound if isinstance(size, Count) else size for size in (left[0], right[0])]
        if min(bounds) < 0:
            return None
        return (steps.count(steps.node.output[0], number(*bounds)),)

    return rule


def _minimum(steps: Steps, operands: _Operands) -> _Found:
    known = [operand[0] for operand in operands if operand is not None and len(operand) == 1]
    bounds = [size.bound if isinstance(size, Count) else size for size in known]
    # A number that is not known may be negative, which is no size.
    if len(known) < len(operands) or min(bounds) < 0:
        return None
    return (steps.count(steps.node.output[0], min(bounds)),)


_RULES: Mapping[str, Callable[[Steps, _Operands], _Found]] = {
    "Add": _computed(lambda left, right: left + right),
    "Cast": _cast,
    "Concat": _joined,
    "Gather": _gathered,
    "Identity": _same,
    "Min": _minimum,
    "Mul": _computed(lambda left, right: left * right),
    "Reshape": _same,
    "Slice": _sliced,
    "Squeeze": _same,
    "Unsqueeze": _same,
}
