"""Visits every message of an ONNX file by its protobuf descriptor, so that no field is missed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableSequence
from typing import Any

from google.protobuf.message import Message
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto


def describe_node(node: NodeProto) -> str:
    """Describe a node for messages: ``node 'conv1' (Conv)``. A nameless node is named after its first output."""
    name = node.name or next((output for output in node.output if output), "")
    operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    return f"node '{name}' ({operator})"


def messages(root: Message) -> Iterator[tuple[Message, str]]:
    """Yield ``root`` and all messages below it in document order, each with the description of its node, if any."""
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
    """Yield every tensor with a description: initialisers, attributes, sparse tensors, also in functions."""
    for message, owner in messages(root):
        if isinstance(message, TensorProto):
            name = f"tensor '{message.name}'" if message.name else "a nameless tensor"
            yield message, f"{name} of {owner}" if owner else name


def nodes(root: ModelProto | GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """Yield every node, also of subgraphs, functions and training."""
    for part in _parts(root):
        # Copies of the lists, as callers may edit what they were given.
        for node in list(part.node):
            yield node
            if node.attribute:
                for body in subgraphs(node):
                    yield from nodes(body)


def _parts(root: ModelProto | GraphProto | FunctionProto) -> list[GraphProto | FunctionProto]:
    """The graphs and functions of a model that are in no node of it. Much faster than to visit all messages."""
    if not isinstance(root, ModelProto):
        return [root]
    training = [
        graph for information in root.training_info for graph in (information.initialization, information.algorithm)
    ]
    defaults = [
        attribute.g for function in root.functions for attribute in function.attribute_proto if attribute.HasField("g")
    ]
    return [root.graph, *training, *root.functions, *defaults]


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the bodies that a control-flow node has as attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def graphs(root: ModelProto | GraphProto | FunctionProto) -> Iterator[GraphProto]:
    """Yield every graph, outer graphs before the graphs inside them."""
    for part in _parts(root):
        if isinstance(part, GraphProto):
            yield part
        for node in list(part.node):
            if node.attribute:
                for body in subgraphs(node):
                    yield from graphs(body)


def defined_names(graph: GraphProto) -> Iterator[str]:
    """Yield the names of the values that a graph is given or computes, without those of the graphs inside it."""
    yield from (value.name for value in graph.input)
    yield from (tensor.name for tensor in graph.initializer)
    yield from (sparse.values.name for sparse in graph.sparse_initializer)
    yield from (name for node in graph.node for name in node.output if name)


def names_inside(node: NodeProto) -> Iterator[str]:
    """Yield the names that the bodies of a node define, or describe, as they may do with values around them."""
    for body in subgraphs(node) if node.attribute else ():
        for graph in graphs(body):
            yield from defined_names(graph)
            yield from (value.name for value in (*graph.value_info, *graph.output))


def outer_names(graph: GraphProto) -> set[str]:
    """Names of values outside ``graph`` that it, or a graph inside it, reads."""
    known = set(defined_names(graph))
    used = {name for node in graph.node for name in node.input if name}
    used |= {value.name for value in graph.output}
    for node in graph.node:
        for body in subgraphs(node) if node.attribute else ():
            used |= outer_names(body)
    return used - known


def names_read(node: NodeProto) -> set[str]:
    """Names of all values that ``node`` reads: its inputs, and values outside its bodies that these read."""
    read = {name for name in node.input if name}
    for body in subgraphs(node) if node.attribute else ():
        read |= outer_names(body)
    return read


def drop_named(items: MutableSequence[Any], is_dropped: Callable[[str], bool]) -> None:
    """Remove the messages of a list whose names say so, without a copy of those that stay."""
    for index in reversed(range(len(items))):
        if is_dropped(items[index].name):
            del items[index]
