"""Writes caches of keys and values in one input, as ONNX Runtime's converter of GPT-2 has them, as what appends to both
at once: ``past_0`` has keys and then values along its first axis, and so has ``present_0``.

Such models take both apart, append to each, and stack them again. Here the rows of both are stacked, and appended to
the input; keys and values are taken of what comes of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, opset, optional_input
from sartor.onnx_model.rewrites.structure.drop_unused import drop_unused
from sartor.onnx_model.rewrites.structure.sort_nodes import sort_nodes

_HALVES = 2


@dataclass(frozen=True)
class _Half:
    """A node that appends rows to the keys, or the values, of an input.

    Attributes:
        past: name of the input.
        place: 0 for what comes first along its first axis.
        axis: of the positions, in the half.
        node: the node.
    """

    past: str
    place: int
    axis: int
    node: NodeProto


def append_to_stacks(model: ModelProto) -> tuple[str, ...]:
    """Append to keys and values at once, in place; returns the names of the nodes that stacked them."""
    version = opset(model)
    editor = GraphEditor(model.graph)
    changed = list[str]()
    while (stack := _next_stack(editor)) is not None:
        node, halves = stack
        changed.append(node.name)
        _append_at_once(node, halves, editor, version)
    if changed:
        sort_nodes(model)
        drop_unused(model)
    return tuple(changed)


def _next_stack(editor: GraphEditor) -> tuple[NodeProto, tuple[_Half, _Half]] | None:
    """A node that stacks keys and values that it appended to, and what it stacks."""
    stacks = ((node, _stacked(node, editor)) for node in editor.nodes)
    return next(((node, halves) for node, halves in stacks if halves is not None), None)


def _stacked(node: NodeProto, editor: GraphEditor) -> tuple[_Half, _Half] | None:
    """What a node stacks, if both are halves of one input."""
    if node.op_type != "Concat" or node.domain or attributes(node).get("axis") != 0 or len(node.input) != _HALVES:
        return None
    halves = [_half(name, editor) for name in node.input]
    first, second = halves
    if first is None or second is None or (first.past, first.axis) != (second.past, second.axis):
        return None
    return (first, second) if (first.place, second.place) == (0, 1) else None


def _half(raised: str, editor: GraphEditor) -> _Half | None:
    """The node that appends to a half of an input, where its result is stacked."""
    node = editor.producer(raised)
    joining = (
        editor.producer(node.input[0]) if node is not None and _axes_of(node, "Unsqueeze", editor) == [0] else None
    )
    if joining is None or joining.op_type != "Concat" or joining.domain or len(joining.input) != _HALVES:
        return None
    past, place = _taken(joining.input[0], editor)
    rank = editor.rank(past) if past else None
    if not rank or editor.producer(past) is not None:
        return None
    return _Half(past, place, int(attributes(joining).get("axis", 0)) % (rank - 1), joining)


def _taken(name: str, editor: GraphEditor) -> tuple[str, int]:
    """The value whose half another one is, and which; an empty name if it is none."""
    node = editor.producer(name)
    if node is not None and node.op_type == "Gather" and not node.domain and not attributes(node).get("axis", 0):
        index = editor.constant(node.input[1])
        is_half = index is not None and index.shape == () and -_HALVES <= int(index) < _HALVES
        return (str(node.input[0]), int(index) % _HALVES) if is_half and index is not None else ("", 0)
    if node is not None and _axes_of(node, "Squeeze", editor) == [0]:
        split = editor.producer(node.input[0])
        is_split = split is not None and split.op_type == "Split" and not attributes(split).get("axis", 0)
        if split is not None and is_split and len(split.output) == _HALVES:
            return str(split.input[0]), [*split.output].index(node.input[0])
    return "", 0


def _axes_of(node: NodeProto, operator: str, editor: GraphEditor) -> list[int]:
    """The axes of a node of this operator."""
    if node.op_type != operator or node.domain:
        return []
    given = attributes(node).get("axes")
    axes = editor.constant(optional_input(node, 1)) if given is None else given
    return [] if axes is None else [int(axis) for axis in axes]


def _append_at_once(node: NodeProto, halves: tuple[_Half, _Half], editor: GraphEditor, version: int) -> None:
    """Write the nodes in place of one that stacks keys and values."""
    emit = Emitter(editor, node)
    rows = [emit.raised(half.node.input[1], 0, version) for half in halves]
    new = emit("Concat", *rows, part="rows", axis=0)
    emit("Concat", halves[0].past, new, output=node.output[0], axis=halves[0].axis + 1)
    for half in halves:
        place = emit.editor.add_constant(f"{half.node.name}/place", np.array(half.place, np.int64))
        emit("Gather", node.output[0], place, part="half", output=half.node.output[0], axis=0)
    dropped = [node, *(half.node for half in halves)]
    kept = [node for node in editor.nodes if not any(node is other for other in dropped)]
    editor.set_nodes([*kept, *emit.nodes])
