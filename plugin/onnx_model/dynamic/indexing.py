"""Operators that select elements of counted values, or by counted indices: Gather, Slice, Concat, TopK."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, TensorProto

from sartor.onnx_model.dynamic.sizes import known_sizes
from sartor.onnx_model.dynamic.steps import Count, Counted, Steps
from sartor.onnx_model.graphs.graph import attributes, optional_input

_TWICE = "two of its dimensions would depend on data"


def gather(steps: Steps) -> None:
    """Elements of a value by indices, of which either may be counted, or both if the indices select valid elements."""
    node = steps.node
    value, indices = node.input
    shape = steps.shape(value)
    axis = attributes(node).get("axis", 0) % len(shape)
    known, chosen = steps.tail.counted.get(value), steps.tail.counted.get(indices)
    rank = len(steps.shape(indices))
    # What is not valid may be no index at all.
    picked = steps.masked(indices, 0)
    if known is not None and known.axis == axis:
        picked = _from_end(steps, picked, known.count)
    elif known is not None and chosen is not None:
        raise steps.refusal(_TWICE)
    steps.keep([value, picked])
    if chosen is not None:
        steps.set_counted(node.output[0], axis + chosen.axis, chosen.count)
    elif known is not None and known.axis != axis:
        moved = known.axis if known.axis < axis else known.axis + rank - 1
        steps.set_counted(node.output[0], moved, known.count)


def _from_end(steps: Steps, indices: str, count: Count) -> str:
    """Negative indices count from the end of what is valid. If nothing is, they are 0, which is within bounds."""
    given = steps.editor.constant(indices)
    if given is not None and (given >= 0).all():
        return indices
    wide = steps.cast(indices, TensorProto.INT64)
    moved = steps("Where", steps("Less", wide, steps.scalar(0)), steps("Add", wide, count.name), wide)
    return steps("Max", moved, steps.scalar(0))


def _coordinates_from_end(steps: Steps, indices: str, known: Counted, depth: int) -> str:
    """As ``_from_end``, of the coordinate along the counted axis; the others count from the end of static sizes."""
    given = steps.editor.constant(indices)
    if given is not None and (given >= 0).all():
        return indices
    wide = steps.cast(indices, TensorProto.INT64)
    size = steps("Mul", steps.integers(*(int(axis == known.axis) for axis in range(depth))), known.count.name)
    is_counted = steps.shared_constant(np.arange(depth) == known.axis, "counted")
    is_moved = steps("And", steps("Less", wide, steps.scalar(0)), is_counted)
    moved = steps("Where", is_moved, steps("Add", wide, size), wide)
    within = steps("Max", moved, steps.scalar(0))
    return steps("Where", is_counted, within, wide)


def gather_nd(steps: Steps) -> None:
    """Slices of a value by counted coordinates."""
    node = steps.node
    value, indices = node.input
    chosen, known = steps.tail.counted.get(indices), steps.tail.counted.get(value)
    rank = len(steps.shape(indices))
    if attributes(node).get("batch_dims", 0):
        raise steps.refusal("it has batch dimensions")
    depth = steps.shape(indices)[-1]
    if chosen is not None and chosen.axis == rank - 1:
        raise steps.refusal("the number of coordinates depends on data")
    if known is not None and known.axis >= depth:
        raise steps.refusal("the size of the slices that it selects depends on data")
    places = steps.masked(indices, 0)
    if known is not None:
        places = _coordinates_from_end(steps, places, known, depth)
    steps.keep([value, places])
    if chosen is not None:
        steps.set_counted(node.output[0], chosen.axis, chosen.count)


def slice_(steps: Steps) -> None:
    """Slices of counted values, and slices whose bounds are known when the model runs."""
    node = steps.node
    value = node.input[0]
    shape, known = steps.shape(value), steps.tail.counted.get(value)
    axes = _slice_axes(steps, len(shape))
    moving = [index for index, axis in enumerate(axes) if _moves(steps, index, axis, known)]
    if not moving:
        steps.keep()
        if known is not None:
            steps.set_counted(node.output[0], known.axis, known.count)
        return
    if len(moving) > 1 or (known is not None and axes[moving[0]] != known.axis):
        raise steps.refusal(_TWICE)
    index = moving[0]
    rest = _without(steps, index, axes)
    kept = steps("Slice", value, *rest) if rest else value
    axis = axes[index]
    total = known.count if known is not None else Count(steps.scalar(shape[axis]), shape[axis])
    _cut(steps, kept, axis, total, index)


def _slice_axes(steps: Steps, rank: int) -> list[int]:
    name = optional_input(steps.node, 3)
    if not name:
        return list(range(steps.shape(steps.node.input[1])[0]))
    given = steps.editor.constant(name)
    if given is None:
        raise steps.refusal("its axes are not known before it runs")
    return [int(axis) % rank for axis in given.reshape(-1)]


def _moves(steps: Steps, index: int, axis: int, known: Counted | None) -> bool:
    """Whether the bounds of one axis depend on data, or on the count of the value."""
    is_fixed = all(steps.editor.is_constant(name) for name in steps.node.input[1:3])
    return not is_fixed or (known is not None and axis == known.axis)


def _without(steps: Steps, index: int, axes: list[int]) -> list[str]:
    """The operands of a slice along the other axes."""
    if len(axes) == 1:
        return []
    operands: list[str] = []
    for name in (*steps.node.input[1:3], "", optional_input(steps.node, 4)):
        if not name and len(operands) == 2:
            others = np.array([axis for place, axis in enumerate(axes) if place != index])
            operands.append(steps.constant(others.astype(steps.dtype(steps.node.input[1])), "axes"))
        elif name:
            given = steps.editor.constant(name)
            if given is None:
                raise steps.refusal("bounds of several axes depend on data")
            operands.append(steps.constant(np.delete(given, index), "bounds"))
    return operands


def _cut(steps: Steps, value: str, axis: int, total: Count, index: int) -> None:
    """Elements from one bound to another, of which negative ones count from the end of what is valid."""
    node = steps.node
    step = _bound(steps, optional_input(node, 4), index)
    if step not in (1, ""):
        raise steps.refusal("its step is not 1")
    first = _clamped(steps, _bound(steps, node.input[1], index), total)
    size = steps.shape(value)[axis]
    most = _most(steps, node, index, size)
    count = Count(_length(steps, first, total, index), most)
    places = steps("Min", steps("Add", steps.iota(most), first), steps.scalar(max(size - 1, 0)))
    steps("Gather", value, places, axis=axis, output=node.output[0])
    steps.set_counted(node.output[0], axis, count)


def _length(steps: Steps, first: str, total: Count, index: int) -> str:
    """The number of elements between two bounds: one value for all slices between the same two."""
    lengths = steps.tail.lengths
    between = tuple(_written(steps, name, index) for name in (*steps.node.input[1:3], total.name))
    if between not in lengths:
        end = _clamped(steps, _bound(steps, steps.node.input[2], index), total)
        lengths[between] = steps("Max", steps("Sub", end, first), steps.scalar(0))
    return lengths[between]


def _written(steps: Steps, name: str, index: int) -> tuple[str, int]:
    """What tells whether two bounds are one: a number, or the value of which they are an element."""
    given = steps.editor.constant(name)
    if given is None:
        return name, index
    return "", int(given.reshape(-1)[index if given.size > 1 else 0])


def _bound(steps: Steps, name: str, index: int) -> int | str:
    """A bound: a number, or the name of a scalar that is known when the model runs."""
    if not name:
        return ""
    given = steps.editor.constant(name)
    if given is not None:
        return int(given.reshape(-1)[index])
    if steps.shape(name) in ((), (1,)):
        return steps.as_scalar(name)
    return steps.as_scalar(steps("Gather", name, steps.integers(index)))


def _clamped(steps: Steps, bound: int | str, total: Count) -> str:
    """A bound as an index from 0 to the number of valid elements."""
    if isinstance(bound, int) and bound >= 0:
        return steps("Min", steps.scalar(bound), total.name)
    if isinstance(bound, int):
        return steps("Max", steps("Add", steps.scalar(bound), total.name), steps.scalar(0))
    is_negative = steps("Less", bound, steps.scalar(0))
    index = steps("Where", is_negative, steps("Add", bound, total.name), bound)
    return steps("Max", steps("Min", index, total.name), steps.scalar(0))


def _most(steps: Steps, node: NodeProto, index: int, size: int) -> int:
    """The largest number of elements that a slice may have."""
    first, end = (steps.editor.constant(name) for name in node.input[1:3])
    begin = 0 if first is None else int(first.reshape(-1)[index])
    if end is not None and begin >= 0 and int(end.reshape(-1)[index]) >= 0:
        return max(min(int(end.reshape(-1)[index]), size) - begin, 0)
    sizes = known_sizes(steps, node.input[2])
    limit = sizes[index] if sizes is not None and end is None else None
    return min(size, limit.bound) if isinstance(limit, Count) else size


def concat(steps: Steps) -> None:
    """Values side by side, or one behind another: then the valid elements of all are moved to the front."""
    node = steps.node
    axis = attributes(node)["axis"] % len(steps.shape(node.input[0]))
    known = [steps.tail.counted.get(name) for name in node.input]
    counts = {(count.axis, count.count.name): count for count in known if count is not None}
    if all(count is None or count.axis == axis for count in known):
        _joined(steps, axis, known)
        return
    if len(counts) != 1 or None in known:
        raise steps.refusal("the sizes of its operands depend on different data")
    ((_, count),) = counts.items()
    steps.keep()
    steps.set_counted(node.output[0], count.axis, count.count)


def _joined(steps: Steps, axis: int, known: list[Counted | None]) -> None:
    node = steps.node
    sizes = [steps.shape(name)[axis] for name in node.input]
    counts = [
        steps.scalar(size) if count is None else count.count.name for count, size in zip(known, sizes, strict=True)
    ]
    whole = steps("Concat", *node.input, axis=axis)
    total, places, begin = steps.scalar(0), steps.iota(sum(sizes)), 0
    source = places
    for count, size in zip(counts, sizes, strict=True):
        # Where the places after the operands so far begin, an element lies further behind in the operands.
        behind = steps("GreaterOrEqual", places, total)
        moved = steps("Add", steps("Sub", places, total), steps.scalar(begin))
        source = steps("Where", behind, moved, source)
        total, begin = steps("Add", total, count), begin + size
    source = steps("Min", source, steps.scalar(max(sum(sizes) - 1, 0)))
    steps("Gather", whole, source, axis=axis, output=node.output[0])
    steps.set_counted(node.output[0], axis, Count(total, sum(sizes)))


def top_k(steps: Steps) -> None:
    """The largest or smallest elements, of a counted value or as many as are known when the model runs."""
    node, settings = steps.node, attributes(steps.node)
    value, wanted = node.input
    shape, known = steps.shape(value), steps.tail.counted.get(value)
    axis = settings.get("axis", -1) % len(shape)
    fixed = steps.editor.constant(wanted)
    if known is not None and known.axis != axis:
        if fixed is None:
            raise steps.refusal(_TWICE)
        steps.keep()
        for output in filter(None, node.output):
            steps.set_counted(output, known.axis, known.count)
        return
    if fixed is None:
        sizes = known_sizes(steps, wanted)
        most = shape[axis]
        if sizes is not None and isinstance(sizes[0], Count):
            most = min(most, sizes[0].bound)
        count = Count(steps.as_scalar(wanted), most)
    else:
        # More than are valid are refused by ONNX, so that all of these are valid.
        most, count = min(int(fixed.item()), shape[axis]), None
    operand = steps.masked(value, _last(steps, value, largest=bool(settings.get("largest", 1))))
    names = steps.many(
        "TopK", operand, steps.integers(most), outputs=tuple(node.output), axis=axis, largest=settings.get("largest", 1)
    )
    if count is not None:
        for output in names:
            steps.set_counted(output, axis, count)


def _last(steps: Steps, value: str, *, largest: bool) -> float:
    """A number that is sorted behind all others."""
    dtype = steps.dtype(value)
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        return int(limits.min if largest else limits.max)
    return -np.inf if largest else np.inf


def range_(steps: Steps) -> None:
    """The numbers from 0 to a size, in steps of 1."""
    node = steps.node
    first, step = (steps.editor.constant(node.input[index]) for index in (0, 2))
    sizes = known_sizes(steps, node.input[1])
    if first is None or step is None or first.item() != 0 or step.item() != 1 or sizes is None:
        raise steps.refusal("its bounds are not known before it runs")
    (count,) = sizes
    if not isinstance(count, Count):
        raise steps.refusal("its bounds are not known before it runs")
    steps("Cast", steps.iota(count.bound), output=node.output[0], to=steps.editor.element_type(node.input[1]))
    steps.set_counted(node.output[0], 0, count)
