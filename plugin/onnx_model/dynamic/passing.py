"""Operators that compute each slice of a counted value by itself, or move its elements."""

from __future__ import annotations

import math

import numpy as np

from sartor.onnx_model.dynamic.sizes import known_sizes
from sartor.onnx_model.dynamic.steps import Count, Counted, Size, Steps
from sartor.onnx_model.graphs.graph import attributes, optional_input

_DIVISIONS = frozenset({"Div", "Mod"})
_DIFFERENT = "the sizes of its operands depend on different data"


def elementwise(steps: Steps) -> None:
    """Operators that broadcast their operands."""
    node = steps.node
    ranks = {name: len(steps.shape(name)) for name in node.input if name}
    rank = max(ranks.values())
    axes = [
        (known.axis + rank - ranks[name], known.count)
        for name in ranks
        if (known := steps.tail.counted.get(name)) is not None
    ]
    axis, count = axes[0]
    if any((place, other.name) != (axis, count.name) for place, other in axes):
        raise steps.refusal(_DIFFERENT)
    for name, own in ranks.items():
        position = axis - (rank - own)
        if name not in steps.tail.counted and position >= 0 and steps.shape(name)[position] != 1:
            raise steps.refusal(f"'{name}' has a fixed size where that of another operand depends on data")
    steps.keep(_divisible(steps))
    steps.set_counted(node.output[0], axis, count)


def _divisible(steps: Steps) -> list[str]:
    """Operands whose elements that are not valid may be computed with: processors stop at integers divided by 0."""
    node = steps.node
    if node.op_type not in _DIVISIONS or np.issubdtype(steps.dtype(node.input[1]), np.floating):
        return list(node.input)
    return [node.input[0], steps.masked(node.input[1], 1)]


def transpose(steps: Steps) -> None:
    """The axis moves."""
    known = steps.tail.counted[steps.node.input[0]]
    rank = len(steps.shape(steps.node.input[0]))
    order = attributes(steps.node).get("perm", list(range(rank))[::-1])
    steps.keep()
    steps.set_counted(steps.node.output[0], order.index(known.axis), known.count)


def unsqueeze(steps: Steps) -> None:
    """Dimensions of one element are added."""
    known = steps.tail.counted[steps.node.input[0]]
    axes = _axes(steps)
    rank = len(steps.shape(steps.node.input[0])) + len(axes)
    added = {axis % rank for axis in axes}
    kept = [axis for axis in range(rank) if axis not in added]
    steps.keep()
    steps.set_counted(steps.node.output[0], kept[known.axis], known.count)


def squeeze(steps: Steps) -> None:
    """Dimensions of one element are removed, which must be named."""
    known = steps.tail.counted[steps.node.input[0]]
    rank = len(steps.shape(steps.node.input[0]))
    if not optional_input(steps.node, 1):
        raise steps.refusal("it removes all dimensions of one element, and whether one has one depends on data")
    removed = {axis % rank for axis in _axes(steps)}
    if known.axis in removed:
        raise steps.refusal("it removes the dimension whose size depends on data")
    steps.keep()
    steps.set_counted(steps.node.output[0], known.axis - sum(axis < known.axis for axis in removed), known.count)


def _axes(steps: Steps) -> list[int]:
    given = steps.editor.constant(optional_input(steps.node, 1))
    if given is None:
        raise steps.refusal("its axes are not known before it runs")
    return [int(axis) for axis in given.reshape(-1)]


def along(steps: Steps) -> None:
    """Operators along one axis, for which the other axes are independent."""
    node = steps.node
    known = steps.tail.counted[node.input[0]]
    rank = len(steps.shape(node.input[0]))
    if attributes(node).get("axis", _DEFAULT_AXES.get(node.op_type, 0)) % rank == known.axis:
        raise steps.refusal("it computes along the dimension whose size depends on data")
    _keep_all(steps, known)


_DEFAULT_AXES = {"Softmax": -1, "LogSoftmax": -1, "Hardmax": -1, "Split": 0}


def rows(steps: Steps) -> None:
    """Operators that compute each element of a batch, or each row of a matrix, by itself."""
    node = steps.node
    known = steps.tail.counted.get(node.input[0])
    if known is None:
        raise steps.refusal("it mixes elements along the dimension whose size depends on data")
    rank = len(steps.shape(node.input[0]))
    others = [name for name in node.input[1:] if name in steps.tail.counted]
    if attributes(node).get("training_mode", 0):
        raise steps.refusal("it takes the mean of the dimension whose size depends on data")
    is_row = known.axis < rank - 1 and node.op_type == "MatMul" and len(steps.shape(node.input[1])) == 2
    is_turned = node.op_type == "Gemm" and attributes(node).get("transA", 0)
    is_first = known.axis == 0 and not is_turned and (node.op_type != "MatMul" or is_row)
    if others or not (is_row or is_first):
        raise steps.refusal("it mixes elements along the dimension whose size depends on data")
    _keep_all(steps, known)


def dropped(steps: Steps) -> None:
    """A Dropout, which is one at inference, or refused later: values and mask are valid where its operand is."""
    known = steps.tail.counted.get(steps.node.input[0])
    if known is None:
        raise steps.refusal("its ratio depends on data")
    _keep_all(steps, known)


def _keep_all(steps: Steps, known: Counted) -> None:
    steps.keep()
    for output in steps.node.output:
        if output:
            steps.set_counted(output, known.axis, known.count)


def reshape(steps: Steps) -> None:
    """Shapes in which the valid elements still are the first ones along one axis."""
    node = steps.node
    known = steps.tail.counted.get(node.input[0])
    shape = steps.shape(node.input[0])
    target = known_sizes(steps, node.input[1])
    if target is None:
        raise steps.refusal(f"the shape '{node.input[1]}' is not known before it runs")
    if known is None:
        raise steps.refusal("the shape depends on data, but the value does not")
    if not attributes(node).get("allowzero", 0):
        true: list[Size] = list(shape)
        true[known.axis] = known.count
        target = tuple(true[axis] if size == 0 else size for axis, size in enumerate(target))
    target = _without_rest(target, shape, known)
    axis = _open_axis(steps, target, known)
    before, inner = math.prod(shape[: known.axis]), math.prod(shape[known.axis + 1 :])
    sizes = [size if isinstance(size, int) else 1 for size in target]
    outer, rest = math.prod(sizes[:axis]), math.prod(sizes[axis + 1 :])
    total = shape[known.axis] * inner
    if before != outer or not rest or total % rest:
        raise steps.refusal("it mixes the dimension whose size depends on data with others")
    sizes[axis] = total // rest
    steps("Reshape", node.input[0], steps.integers(*sizes), output=node.output[0])
    steps.set_counted(node.output[0], axis, _scaled(steps, known.count, inner, rest))


def _without_rest(target: tuple[Size, ...], shape: tuple[int, ...], known: Counted) -> tuple[Size, ...]:
    """The new shape with what -1 stands for, where the count stands in it, too: the elements of a single entry."""
    counts = [size.name for size in target if isinstance(size, Count)]
    if counts != [known.count.name] or -1 not in target:
        return target
    others = math.prod(shape[: known.axis]) * math.prod(shape[known.axis + 1 :])
    given = math.prod(size for size in target if isinstance(size, int) and size != -1)
    if not given or others % given:
        return target
    return tuple(others // given if size == -1 else size for size in target)


def _open_axis(steps: Steps, target: tuple[Size, ...], known: Counted) -> int:
    """The axis of the new shape whose size depends on data."""
    axes = [axis for axis, size in enumerate(target) if isinstance(size, Count)]
    axes = axes or [axis for axis, size in enumerate(target) if size == -1]
    if len(axes) != 1 or (-1 in target and axes != [target.index(-1)]):
        raise steps.refusal("not one dimension of the shape depends on data")
    return axes[0]


def _scaled(steps: Steps, count: Count, inner: int, rest: int) -> Count:
    if inner == rest:
        return count
    whole = steps("Mul", count.name, steps.scalar(inner))
    return Count(steps("Div", whole, steps.scalar(rest)), count.bound * inner // rest)


def flatten(steps: Steps) -> None:
    """A matrix, if the valid elements are its first rows or columns."""
    node = steps.node
    known, shape = steps.tail.counted[node.input[0]], steps.shape(node.input[0])
    axis = attributes(node).get("axis", 1)
    axis += len(shape) if axis < 0 else 0
    first = known.axis < axis
    begin, end = (0, axis) if first else (axis, len(shape))
    if math.prod(shape[begin : known.axis]) != 1:
        raise steps.refusal("it mixes the dimension whose size depends on data with others")
    inner = math.prod(shape[known.axis + 1 : end])
    steps.keep()
    steps.set_counted(node.output[0], 0 if first else 1, _scaled(steps, known.count, inner, 1))


def expand(steps: Steps) -> None:
    """Expansion to a shape that has the same count, or of a single element to a count."""
    node = steps.node
    target = known_sizes(steps, node.input[1])
    if target is None:
        raise steps.refusal(f"the shape '{node.input[1]}' is not known before it runs")
    known = steps.tail.counted.get(node.input[0])
    counts = [(axis, size) for axis, size in enumerate(target) if isinstance(size, Count)]
    shape = steps.shape(node.input[0])
    rank = max(len(shape), len(target))
    counted = {(axis + rank - len(target), count.name): count for axis, count in counts}
    if known is not None:
        counted.setdefault((known.axis + rank - len(shape), known.count.name), known.count)
    if len(counted) != 1:
        raise steps.refusal(_DIFFERENT)
    (((axis, _), count),) = counted.items()
    own = axis - (rank - len(shape))
    asked = axis - (rank - len(target))
    if known is None and own >= 0 and shape[own] != 1:
        raise steps.refusal("it expands a dimension of fixed size to one that depends on data")
    if known is not None and asked >= 0 and target[asked] != 1 and not counts:
        raise steps.refusal("it expands a dimension whose size depends on data to a fixed one")
    sizes = [size.bound if isinstance(size, Count) else size for size in target]
    steps("Expand", node.input[0], steps.integers(*sizes), output=node.output[0])
    steps.set_counted(node.output[0], axis, count)


def filled(steps: Steps) -> None:
    """ConstantOfShape, with one dimension that depends on data."""
    node = steps.node
    target = known_sizes(steps, node.input[0])
    counts = [(axis, size) for axis, size in enumerate(target or ()) if isinstance(size, Count)]
    if target is None or len(counts) != 1:
        raise steps.refusal("not one dimension of the shape depends on data")
    sizes = [size.bound if isinstance(size, Count) else size for size in target]
    steps.keep([steps.integers(*sizes)])
    steps.set_counted(node.output[0], *counts[0])
