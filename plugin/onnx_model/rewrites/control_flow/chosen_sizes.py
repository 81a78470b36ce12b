"""Selecting between two results of which one is longer than the other along an axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import helper

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor

Kind = tuple[int, tuple[int, ...] | None]
"""Element type and shape, where it is known."""

_Sizes = tuple[int, int]


def can_select(pair: Sequence[Kind]) -> bool:
    """Whether one of two results can be selected: they are alike, but for the size of one axis."""
    (left_type, left), (right_type, right) = pair
    if left_type != right_type or left is None or right is None or len(left) != len(right):
        return False
    return len(_differing(left, right)) <= 1


def differ(pair: Sequence[Kind]) -> bool:
    """Whether the shapes of two results are known and differ."""
    shapes = [shape for _, shape in pair if shape is not None]
    return len(shapes) == 2 and shapes[0] != shapes[1]


def select(
    emit: Emitter, condition: str, names: Sequence[str], pair: Sequence[Kind], output: str, chosen: dict[_Sizes, str]
) -> None:
    """Emit the nodes that take the first result where a condition holds, and the second elsewhere.

    The shorter one is made as long as the other, and what is selected is cut to the size of what was chosen: a slice
    whose bound is computed, which counts as a size that depends on data.

    Args:
        emit: of the conditional.
        condition: a scalar.
        names: of both results.
        pair: what is known of them.
        output: what the one that is taken is called.
        chosen: the computed bounds by the sizes of both results. Results of one conditional share them: those whose
            sizes are equal have one count.
    """
    left, right = (shape or () for _, shape in pair)
    axes = _differing(left, right)
    if not axes:
        emit("Where", condition, *names, part="selected", output=output)
        return
    (axis,) = axes
    most = max(left[axis], right[axis])
    longest = [_lengthened(emit, name, kind, axis, most) for name, kind in zip(names, pair, strict=True)]
    whole = emit("Where", condition, *longest, part="selected")
    sizes = left[axis], right[axis]
    if sizes not in chosen:
        chosen[sizes] = emit("Where", condition, *(emit.constant([size], "size") for size in sizes), part="size")
    bounds = (emit.constant([0], "start"), chosen[sizes], emit.constant([axis], "axis"))
    emit("Slice", whole, *bounds, part="chosen", output=output)
    _open_result(emit.editor, output)


def _open_result(editor: GraphEditor, name: str) -> None:
    """Forget a shape that is declared for a result: it is that of one of the two."""
    editor.forget(name)
    for value in editor.graph.output:
        if value.name == name:
            value.type.tensor_type.ClearField("shape")


def _lengthened(emit: Emitter, name: str, kind: Kind, axis: int, size: int) -> str:
    """A result with zeros behind its elements along an axis."""
    shape = list(kind[1] or ())
    if shape[axis] == size:
        return name
    shape[axis] = size - shape[axis]
    zeros = emit.constant(np.zeros(shape, helper.tensor_dtype_to_np_dtype(kind[0])), "zeros")
    return emit("Concat", name, zeros, part="lengthened", axis=axis)


def _differing(left: tuple[int, ...], right: tuple[int, ...]) -> list[int]:
    return [axis for axis, sizes in enumerate(zip(left, right, strict=True)) if sizes[0] != sizes[1]]
