"""Removes nodes that return their input unchanged."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import ModelProto, NodeProto

from sartor.onnx_model.graphs.graph import GraphEditor, attributes, editors, follow, optional_input

_SINGLE_INPUT = ("Concat", "Max", "Mean", "Min", "Sum")


def eliminate_identity(model: ModelProto) -> tuple[str, ...]:
    """Remove Identity, Dropout at inference, casts to the same type, zero pads and one-operand Concat or Sum.

    Graph outputs keep their names: if the removed node computed one, the producer of its input computes it instead.
    An output that is an input, a constant or a second name of another output keeps its Identity. Returns the names of
    the removed nodes.
    """
    removed: list[str] = []
    for editor in editors(model.graph):
        while changed := _eliminate(editor):
            removed.extend(changed)
    return tuple(removed)


def _eliminate(editor: GraphEditor) -> list[str]:
    """One sweep. What it removes may let the next one remove more."""
    aliases: dict[str, str] = {}
    moved: dict[str, str] = {}
    kept: list[NodeProto] = []
    removed: list[str] = []
    for node in editor.nodes:
        target = node.output[0] if _hands_on(node, editor) else ""
        source = follow(node.input[0], aliases) if target else ""
        if target and not editor.is_output(target):
            aliases[target] = source
        elif target and source not in moved and _may_move(source, editor):
            moved[source] = target
        else:
            kept.append(node)
            continue
        removed.append(node.name)
    if not removed:
        return []
    editor.set_nodes(kept)
    _move_outputs(editor, moved)
    editor.redirect(aliases | moved)
    return removed


def _may_move(source: str, editor: GraphEditor) -> bool:
    return editor.producer(source) is not None and not editor.is_output(source)


def _move_outputs(editor: GraphEditor, moved: Mapping[str, str]) -> None:
    for node in editor.nodes:
        if any(name in moved for name in node.output):
            node.output[:] = [moved.get(name, name) for name in node.output]


def _hands_on(node: NodeProto, editor: GraphEditor) -> bool:
    if node.domain not in ("", "ai.onnx") or not node.input or not node.input[0]:
        return False
    if node.op_type == "Identity":
        return True
    if node.op_type == "Dropout":
        return _inactive_dropout(node, editor)
    if node.op_type == "Cast":
        return bool(attributes(node)["to"] == editor.element_type(node.input[0]))
    if node.op_type == "Pad":
        pads = editor.constant(optional_input(node, 1))
        return pads is not None and not pads.any()
    return node.op_type in _SINGLE_INPUT and len(node.input) == 1


def _inactive_dropout(node: NodeProto, editor: GraphEditor) -> bool:
    mask = node.output[1] if len(node.output) > 1 else ""
    if mask and (editor.consumers(mask) or editor.is_output(mask)):
        return False
    return is_inference(node, editor)


def is_inference(node: NodeProto, editor: GraphEditor) -> bool:
    """Whether a Dropout is known to keep all values."""
    training = optional_input(node, 2)
    if not training:
        return True
    # The share of values that are dropped, or whether any are.
    known = (editor.constant(name) for name in (optional_input(node, 1), training) if name)
    return any(value is not None and not value.any() for value in known)
