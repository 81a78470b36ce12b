"""Writes the halves of rows that change places, one of them negated, as one gather: the turns of rotary embeddings.

Exporters slice a head's numbers in two, negate the second part, and concatenate (Su et al., RoFormer, 2021, section
3.4). A concatenation is a copy for each of its parts, one after the other, in dispatches of their own; a gather is
computed with the elementwise ops that read it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from onnx import NodeProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, node_rewrite, optional_input


class _Part(NamedTuple):
    """Elements of the last axis of a value, from ``start`` to before ``end``."""

    source: str
    start: int
    end: int


@node_rewrite("Concat")
def gather_turned(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Gather ``concat(-x[…, h:], x[…, :h])``, where ``x`` has ``2 * h`` elements along its last axis, and change the
    sign of its first half.

    Returns:
        The names of the replaced nodes.
    """
    negated = editor.producer(node.input[0])
    if len(node.input) != 2 or negated is None or negated.op_type != "Neg":
        return None
    upper, lower = _part(negated.input[0], editor), _part(node.input[1], editor)
    if upper is None or lower is None or upper.source != lower.source:
        return None
    shape, half = editor.shape(lower.source) or (), lower.end
    if not half or attributes(node)["axis"] % len(shape) != len(shape) - 1:
        return None
    if lower.start or (upper.start, upper.end, shape[-1]) != (half, 2 * half, 2 * half):
        return None
    emit = Emitter(editor, node)
    places = emit.constant([*range(half, 2 * half), *range(half)], "places")
    signs = emit.constant(np.repeat([-1, 1], half), "signs", emit.dtype(lower.source))
    turned = emit("Gather", lower.source, places, part="turned", axis=len(shape) - 1)
    emit("Mul", turned, signs, output=node.output[0])
    return emit.nodes


def _part(name: str, editor: GraphEditor) -> _Part | None:
    """The part of another value that a value is; None if it is something else."""
    node = editor.producer(name)
    shape = editor.shape(node.input[0]) if node is not None and node.input else None
    if node is None or not shape or not editor.element_type(node.input[0]):
        return None
    if node.op_type == "Slice":
        return _sliced(node, editor, shape)
    axis = attributes(node).get("axis", 0)
    if node.op_type != "Split" or axis % len(shape) != len(shape) - 1:
        return None
    sizes = [(editor.shape(output) or (0,))[-1] for output in node.output]
    start = sum(sizes[: list(node.output).index(name)])
    return _Part(node.input[0], start, start + sizes[list(node.output).index(name)])


def _sliced(node: NodeProto, editor: GraphEditor, shape: tuple[int, ...]) -> _Part | None:
    given = [editor.constant(name) if (name := optional_input(node, index)) else None for index in range(1, 5)]
    if any(optional_input(node, index) and given[index - 1] is None for index in range(1, 5)):
        return None
    starts, ends, axes, steps = (None if array is None else array.reshape(-1).tolist() for array in given)
    if starts is None or ends is None or len(starts) != 1 or steps not in (None, [1]):
        return None
    if (axes or [0])[0] % len(shape) != len(shape) - 1:
        return None
    start, end, _ = slice(starts[0], ends[0]).indices(shape[-1])
    return _Part(node.input[0], start, end)
