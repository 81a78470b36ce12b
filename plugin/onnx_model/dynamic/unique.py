"""Unique: every element, or slice, is compared with every other one."""

from __future__ import annotations

import math

from onnx import TensorProto

from sartor.onnx_model.dynamic.steps import Count, Steps
from sartor.onnx_model.graphs.graph import attributes

# Comparisons of numbers; more take longer than a network.
_MOST_COMPARISONS = 1 << 25


def unique(steps: Steps) -> None:
    """Distinct elements or slices, sorted or in the order of their first occurrence."""
    node, settings = steps.node, attributes(steps.node)
    value = node.input[0]
    if value in steps.tail.counted:
        raise steps.refusal("the size of its operand depends on data")
    shape, axis = steps.shape(value), settings.get("axis")
    if axis is None:
        value, shape, axis = steps.reshaped(value, math.prod(shape)), (math.prod(shape),), 0
    axis %= len(shape)
    size, rows = shape[axis], _rows(steps, value, shape, axis)
    if not size:
        raise steps.refusal("its operand has no elements")
    if size * math.prod(shape) > _MOST_COMPARISONS:
        raise steps.refusal(f"it would compare each of {size} elements with all others")
    _write(steps, value, axis, size, _Order(steps, rows, is_sorted=bool(settings.get("sorted", 1))))


def _rows(steps: Steps, value: str, shape: tuple[int, ...], axis: int) -> str:
    """The slices as rows of a matrix."""
    order = [axis, *(index for index in range(len(shape)) if index != axis)]
    turned = value if order == sorted(order) else steps("Transpose", value, perm=order)
    size = shape[axis]
    return steps.reshaped(turned, size, math.prod(shape) // max(size, 1))


class _Order:
    """Which rows are the first of their kind, and the place of every row's kind in the result.

    Attributes:
        is_first: booleans, one per row.
        place: int64, one per row.
    """

    def __init__(self, steps: Steps, rows: str, *, is_sorted: bool) -> None:
        size, width = steps.shape(rows)
        one, other = steps.reshaped(rows, size, 1, width), steps.reshaped(rows, 1, size, width)
        same = self._all_equal(steps, one, other)
        # 1 below the diagonal, else 0: as numbers, because IREE does not compile constants of many booleans.
        distance = steps("Sub", steps.iota(size, 2, 0), steps.iota(size, 2, 1))
        earlier = steps("Max", steps("Min", distance, steps.scalar(1)), steps.scalar(0))
        before = _total(steps, steps("Mul", steps.cast(same, TensorProto.INT64), earlier), 1)
        self.is_first = steps("Equal", before, steps.scalar(0))
        if is_sorted:
            # Row i comes behind the kinds that are smaller: element i, j says whether row j is.
            smaller = steps("And", self._is_less(steps, other, one), steps.reshaped(self.is_first, 1, size))
            self.place = _total(steps, smaller, 1)
        else:
            running = steps("CumSum", steps.cast(self.is_first, TensorProto.INT64), steps.scalar(0), exclusive=1)
            first = steps("ArgMax", steps.cast(same, TensorProto.INT64), axis=1, keepdims=0)
            self.place = steps("Gather", running, first)

    @staticmethod
    def _all_equal(steps: Steps, one: str, other: str) -> str:
        different = steps("Not", steps("Equal", one, other))
        return steps("Equal", _total(steps, different, 2), steps.scalar(0))

    @staticmethod
    def _is_less(steps: Steps, one: str, other: str) -> str:
        """Whether rows are smaller by the first number that differs."""
        less = steps("Less", one, other)
        if steps.shape(less)[2] == 1:
            return steps.reshaped(less, *steps.shape(less)[:2])
        different = steps.cast(steps("Not", steps("Equal", one, other)), TensorProto.INT64)
        before = steps("CumSum", different, steps.scalar(2), exclusive=1)
        decides = steps("And", less, steps("Equal", before, steps.scalar(0)))
        return steps("Greater", _total(steps, decides, 2), steps.scalar(0))


def _total(steps: Steps, flags: str, axis: int) -> str:
    """How many booleans along an axis are true; the sum of integers."""
    return steps("ReduceSum", steps.cast(flags, TensorProto.INT64), steps.integers(axis), keepdims=0)


def _write(steps: Steps, value: str, axis: int, size: int, order: _Order) -> None:
    node = steps.node
    outputs = [*node.output, "", "", ""][:4]
    count = Count(_total(steps, order.is_first, 0), size)
    # Element p, i says whether row i is of the kind at place p.
    member = steps("Equal", steps.reshaped(steps.iota(size), size, 1), steps.reshaped(order.place, 1, size))
    # Among equal values the first is found, which is the first row of the kind.
    source = steps(
        "ArgMax", steps.cast(member, TensorProto.INT64), axis=1, keepdims=0, output=outputs[1] if outputs[1] else ""
    )
    steps("Gather", value, source, axis=axis, output=outputs[0])
    if outputs[2]:
        steps("Identity", order.place, output=outputs[2])
    if outputs[3]:
        steps(
            "ReduceSum",
            steps.cast(member, TensorProto.INT64),
            steps.integers(1),
            keepdims=0,
            output=outputs[3],
        )
    steps.set_counted(outputs[0], axis, count)
    for output in filter(None, (outputs[1], outputs[3])):
        steps.set_counted(output, 0, count)
