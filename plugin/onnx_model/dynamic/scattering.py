"""Writing elements whose number depends on data into a tensor of a fixed shape."""

from __future__ import annotations

import numpy as np

from sartor.onnx_model.dynamic.steps import Steps


def scatter_nd(steps: Steps) -> None:
    """``ScatterND`` of counted rows: those that are not valid are written behind the data, and cut off.

    Coordinates are [rows, depth], or have more dimensions in front; updates have the rows too.
    """
    data, indices, updates = steps.node.input
    known = steps.tail.counted.get(indices)
    if data in steps.tail.counted:
        raise steps.refusal("it writes into a value whose size depends on data")
    if known is None:
        raise steps.refusal("it writes values whose number depends on data to a fixed number of places")
    other, rank = steps.tail.counted.get(updates), len(steps.shape(indices))
    if known.axis == rank - 1 or (other is not None and other.axis != known.axis):
        raise steps.refusal("another dimension of its operands depends on data than that of its rows")
    shape, depth = steps.shape(data), steps.shape(indices)[-1]
    if not shape[0] or not depth:
        raise steps.refusal("it writes into no elements")
    behind = np.zeros((1, *shape[1:]), steps.dtype(data))
    longer = steps("Concat", data, steps.constant(behind, "behind"), axis=0)
    # Indices below 0 count from the end, which is now another one.
    wrapped = _from_begin(steps, indices, shape[:depth])
    place = steps.integers(shape[0], *[0] * (depth - 1))
    valid = steps.valid(known, rank, steps.shape(indices)[known.axis])
    places = steps("Where", valid, wrapped, place)
    kept = _of_bound(steps, updates, known.axis, steps.shape(indices)[known.axis])
    copied = steps.copy([longer, places, kept])
    steps.tail.infer(steps.nodes[-1])
    bounds = (steps.integers(0), steps.integers(shape[0]), steps.integers(0))
    steps("Slice", copied, *bounds, output=steps.node.output[0])


def _from_begin(steps: Steps, indices: str, sizes: tuple[int, ...]) -> str:
    added = steps("Add", indices, steps.integers(*sizes))
    return steps("Where", steps("Less", indices, steps.integers(0)), added, indices)


def _of_bound(steps: Steps, updates: str, axis: int, rows: int) -> str:
    """Updates with as many rows as there may be; what is counted may be longer, as a source that is flattened."""
    given = steps.shape(updates)[axis]
    if given == rows:
        return updates
    if given < rows:
        raise steps.refusal(f"it may write {rows} rows and has at most {given}")
    return steps("Slice", updates, steps.integers(0), steps.integers(rows), steps.integers(axis))
