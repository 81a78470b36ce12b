"""Reductions of counted values: what is not valid is replaced by what changes no result."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import TensorProto

from sartor.onnx_model.dynamic.steps import Counted, Steps
from sartor.onnx_model.graphs.graph import attributes, optional_input

_NEUTRAL: Mapping[str, float] = {
    "ReduceL1": 0,
    "ReduceL2": 0,
    "ReduceLogSum": 0,
    "ReduceProd": 1,
    "ReduceSum": 0,
    "ReduceSumSquare": 0,
}
_SMALLEST = frozenset({"ArgMax", "ReduceLogSumExp", "ReduceMax"})
_LARGEST = frozenset({"ArgMin", "ReduceMin"})


def reduce_(steps: Steps) -> None:
    """A reduction over any axes. A mean is the sum divided by the count."""
    node, settings = steps.node, attributes(steps.node)
    value = node.input[0]
    known, rank = steps.tail.counted[value], len(steps.shape(value))
    axes = _axes(steps, rank)
    if known.axis not in axes:
        steps.keep()
        removed = 0 if settings.get("keepdims", 1) else sum(axis < known.axis for axis in axes)
        steps.set_counted(node.output[0], known.axis - removed, known.count)
    elif node.op_type == "ReduceMean":
        _mean(steps, known, axes)
    elif settings.get("select_last_index", 0):
        index = steps(node.op_type, steps.masked(value, _fill(steps)), **settings)
        # What is not valid may be as extreme as all that is valid; then the last of these is meant.
        steps("Min", index, steps("Sub", known.count.name, steps.scalar(1)), output=node.output[0])
    else:
        steps.keep([steps.masked(value, _fill(steps)), *node.input[1:]])


def _axes(steps: Steps, rank: int) -> set[int]:
    settings = attributes(steps.node)
    if steps.node.op_type in ("ArgMax", "ArgMin"):
        return {settings.get("axis", 0) % rank}
    given = settings.get("axes")
    if name := optional_input(steps.node, 1):
        constant = steps.editor.constant(name)
        if constant is None:
            raise steps.refusal("its axes are not known before it runs")
        given = constant.reshape(-1).tolist()
    if not given and settings.get("noop_with_empty_axes", 0):
        return set()
    return {int(axis) % rank for axis in given} if given else set(range(rank))


def _fill(steps: Steps) -> float:
    """A value that changes no result of the reduction."""
    kind, dtype = steps.node.op_type, steps.dtype(steps.node.input[0])
    if kind in _NEUTRAL:
        return _NEUTRAL[kind]
    if kind not in _SMALLEST | _LARGEST:
        raise steps.refusal("it reduces a dimension whose size depends on data")
    if dtype == np.bool_:
        return kind in _LARGEST
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        return int(limits.min if kind in _SMALLEST else limits.max)
    return -np.inf if kind in _SMALLEST else np.inf


def _mean(steps: Steps, known: Counted, axes: set[int]) -> None:
    node = steps.node
    value = node.input[0]
    shape = steps.shape(value)
    keeps = attributes(node).get("keepdims", 1)
    element = steps.editor.element_type(value)
    # Sums and counts of f16 exceed it, where a mean does not.
    wide = TensorProto.FLOAT if element in (TensorProto.FLOAT16, TensorProto.BFLOAT16) else element
    valid = steps.cast(steps.masked(value, 0), wide)
    total = steps("ReduceSum", valid, steps.integers(*sorted(axes)), keepdims=keeps)
    others = int(np.prod([shape[axis] for axis in axes if axis != known.axis], dtype=np.int64))
    # A mean of nothing has no meaning: it is 0, as in ONNX Runtime, and of integers must not end the program.
    count = steps("Max", known.count.name, steps.scalar(1))
    number = steps("Mul", count, steps.scalar(others))
    is_wide = wide != element
    mean = steps("Div", total, steps.cast(number, wide), output="" if is_wide else node.output[0])
    if is_wide:
        steps("Cast", mean, output=node.output[0], to=element)
