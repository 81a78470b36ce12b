"""Visits every part of an ONNX file by its protobuf description, so that no field is forgotten."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.message import Message
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto


def describe_node(node: NodeProto) -> str:
    """``node 'conv1' (Conv)``; a nameless node is called after its first output."""
    name = node.name or next((output for output in node.output if output), "")
    operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    return f"node '{name}' ({operator})"


def messages(root: Message) -> Iterator[tuple[Message, str]]:
    """Every message from ``root`` down, in document order, each with the node it belongs to (empty outside nodes)."""
    stack: list[tuple[Message, str]] = [(root, "")]
    while stack:
        message, owner = stack.pop()
        if isinstance(message, NodeProto):
            owner = describe_node(message)
        yield message, owner
        stack.extend((child, owner) for child in reversed(_children(message)))


def _children(message: Message) -> list[Message]:
    if isinstance(message, TensorProto):
        # Listing the fields of a tensor would copy its data.
        return list(message.external_data)
    children: list[Message] = []
    for field, value in message.ListFields():
        if field.message_type is not None:
            children.extend(value if field.is_repeated else (value,))
    return children


def tensors(root: Message) -> Iterator[tuple[TensorProto, str]]:
    """Every tensor, described: initialisers, attributes, sparse tensors, those of subgraphs and functions."""
    for message, owner in messages(root):
        if isinstance(message, TensorProto):
            name = f"tensor '{message.name}'" if message.name else "a nameless tensor"
            yield message, f"{name} of {owner}" if owner else name


def nodes(root: Message) -> Iterator[NodeProto]:
    """Every node, those of subgraphs and functions included."""
    for message, _ in messages(root):
        if isinstance(message, NodeProto):
            yield message


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The bodies that a control-flow node carries in its attributes."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def graphs(root: ModelProto | GraphProto | FunctionProto) -> Iterator[GraphProto]:
    """Every graph, outer ones before the ones inside them."""
    for message, _ in messages(root):
        if isinstance(message, GraphProto):
            yield message


def outer_names(graph: GraphProto) -> set[str]:
    """Names that ``graph`` and the graphs inside it read from outside."""
    known = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    known |= {tensor.values.name for tensor in graph.sparse_initializer}
    known |= {output for node in graph.node for output in node.output}
    used = {name for node in graph.node for name in node.input if name}
    used |= {value.name for value in graph.output}
    for node in graph.node:
        for body in subgraphs(node):
            used |= outer_names(body)
    return used - known


def names_read(node: NodeProto) -> set[str]:
    """Every value ``node`` needs: its inputs, and what its bodies read from outside."""
    read = {name for name in node.input if name}
    for body in subgraphs(node):
        read |= outer_names(body)
    return read
