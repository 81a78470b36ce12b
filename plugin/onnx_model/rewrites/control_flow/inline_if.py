"""Replaces a conditional whose condition is constant by the taken branch."""

from __future__ import annotations

from functools import partial

from onnx import GraphProto, ModelProto, NodeProto, helper

from sartor.onnx_model.graphs.graph import GraphEditor, attributes, editors
from sartor.onnx_model.graphs.tensor_data import to_array
from sartor.onnx_model.graphs.walk import defined_names, subgraphs


def inline_if(model: ModelProto) -> tuple[str, ...]:
    """Inline the taken branch of every ``If`` with a constant condition into the graph around it, also within bodies.

    Nodes of the branch keep their names; its values are renamed to ``<If>/<value>``. Returns the names of the inlined
    nodes.
    """
    changed: list[str] = []
    for editor in editors(model.graph):
        changed.extend(editor.rewrite(partial(_inlined, editor=editor)))
    return tuple(changed)


def _inlined(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    if node.op_type != "If" or node.domain not in ("", "ai.onnx"):
        return None
    condition = editor.constant(node.input[0])
    if condition is None or condition.size != 1:
        return None
    branch: GraphProto = attributes(node)["then_branch" if bool(condition.item()) else "else_branch"]
    renamed = fresh_names(branch, node, editor)
    for tensor in branch.initializer:
        editor.set_constant(renamed[tensor.name], to_array(tensor))
    body = [renamed_node(inner, renamed) for inner in branch.node]
    results = [
        helper.make_node(
            "Identity",
            [renamed.get(value.name, value.name)],
            [output],
            name=editor.fresh_node(f"{node.name}/{output}"),
        )
        for value, output in zip(branch.output, node.output, strict=True)
        if output
    ]
    return [*body, *results]


def fresh_names(branch: GraphProto, node: NodeProto, editor: GraphEditor) -> dict[str, str]:
    """New names in the main graph for what a branch defines."""
    local = [tensor.name for tensor in branch.initializer]
    local += [output for inner in branch.node for output in inner.output if output]
    return {name: editor.fresh(f"{node.name}/{name}") for name in local}


def renamed_node(node: NodeProto, renamed: dict[str, str]) -> NodeProto:
    """A copy of ``node`` with renamed inputs and outputs, in its bodies too, except for names that a body defines."""
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.output[:] = [renamed.get(name, name) for name in node.output]
    _rename_reads(copy, renamed)
    return copy


def _rename_reads(node: NodeProto, renamed: dict[str, str]) -> None:
    node.input[:] = [renamed.get(name, name) for name in node.input]
    for body in subgraphs(node):
        hidden = set(defined_names(body))
        visible = {old: new for old, new in renamed.items() if old not in hidden}
        for inner in body.node:
            _rename_reads(inner, visible)
        for value in body.output:
            value.name = visible.get(value.name, value.name)
