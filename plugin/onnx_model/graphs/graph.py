"""Looks up and edits one ONNX graph: constants, shapes, consumers, fresh names, replacement of nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, wraps
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.held_data import holding_tensor
from sartor.onnx_model.graphs.names import TakenNames
from sartor.onnx_model.graphs.tensor_data import to_array
from sartor.onnx_model.graphs.walk import defined_names, describe_node, drop_named, names_inside, names_read, subgraphs

Array = np.ndarray[Any, Any]
# The exceptions that reading the attributes and shapes of a damaged node may raise. ONNX does not implement tensors of
# text that contain numbers.
MALFORMED = (
    *(ArithmeticError, AttributeError, IndexError, KeyError, MemoryError),
    *(NotImplementedError, TypeError, ValueError),
)
Replacement = Sequence[NodeProto] | None
Rule = Callable[[NodeProto, "GraphEditor"], Replacement]
"""The nodes that replace a node; None keeps it."""


class MalformedError(UnsupportedModelError):
    """One of ``MALFORMED`` was raised, which is the cause: the model is damaged, unless a rewrite is wrong."""


def opset(model: ModelProto) -> int:
    """Version of the standard operator set that the model uses; 0 if it imports none."""
    return next((item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), 0)


def attributes(node: NodeProto) -> dict[str, Any]:
    """Attribute values by name; strings decoded, tensors and graphs as protos."""
    values = {}
    for item in node.attribute:
        value = helper.get_attribute_value(item)
        if item.type == AttributeProto.STRING:
            value = value.decode(errors="replace")
        elif item.type == AttributeProto.STRINGS:
            value = [text.decode(errors="replace") for text in value]
        elif item.type in (AttributeProto.INTS, AttributeProto.FLOATS):
            value = list(value)
        values[item.name] = value
    return values


def optional_input(node: NodeProto, index: int) -> str:
    """Name of the input at ``index``, or an empty string if the node omits it."""
    return str(node.input[index]) if index < len(node.input) else ""


class GraphEditor:
    """An index of one graph, and the edits that rewrites make to it.

    Lookups see the graph as it was when the editor was created or last refreshed. An editor of a control-flow
    node's body also finds the constants and types of the enclosing graph.

    Args:
        graph: the graph.
        outer: of the graph around it, if it is a body.
        owner: the operator of the node whose body it is, if that is a standard one.
    """

    def __init__(self, graph: GraphProto, outer: GraphEditor | None = None, owner: str = "") -> None:
        self.graph = graph
        self.owner = owner
        self._outer = outer
        self._forgotten: set[str] = set()
        self.refresh()

    def refresh(self) -> None:
        """Rebuild the index from the graph."""
        self._tensors: dict[str, TensorProto] = {tensor.name: tensor for tensor in self.graph.initializer}
        self._arrays: dict[str, Array] = {}
        values = (*self.graph.value_info, *self.graph.output, *self.graph.input)
        self._types: dict[str, TypeProto] = {value.name: value.type for value in values}
        self._producers = {output: node for node in self.graph.node for output in node.output if output}
        self._consumers: dict[str, list[NodeProto]] | None = None
        self._outputs = {value.name for value in self.graph.output}
        self._names: TakenNames | None = None
        self._node_names: TakenNames | None = None

    @property
    def nodes(self) -> list[NodeProto]:
        """The graph's nodes in their present order."""
        return list(self.graph.node)

    @property
    def is_nested(self) -> bool:
        """Whether the graph is the body of a control-flow node."""
        return self._outer is not None

    def producer(self, name: str) -> NodeProto | None:
        """The node of this graph that computes ``name``."""
        return self._producers.get(name)

    def consumers(self, name: str) -> list[NodeProto]:
        """The nodes of this graph that read ``name``, as an input or in one of their bodies."""
        if self._consumers is None:
            # Most edits need none, and bodies are read to find them.
            self._consumers = _consumers_in(self.graph)
        return self._consumers.get(name, [])

    def is_output(self, name: str) -> bool:
        """Whether the graph returns ``name``."""
        return name in self._outputs

    def only_consumer(self, name: str) -> NodeProto | None:
        """The only node that reads ``name``; None if there are several or none, or ``name`` is a graph output."""
        readers = self.consumers(name)
        return readers[0] if len(readers) == 1 and not self.is_output(name) else None

    def is_constant(self, name: str) -> bool:
        """Whether ``name`` is an initialiser."""
        return name in self._tensors or (self._outer is not None and self._outer.is_constant(name))

    def constant(self, name: str) -> Array | None:
        """Values of the initialiser ``name``, which must not be written to; None if ``name`` is not an initialiser."""
        if name in self._tensors:
            if name not in self._arrays:
                self._arrays[name] = to_array(self._tensors[name])
            return self._arrays[name]
        if name in self._types or name in self._producers or self._outer is None:
            return None
        return self._outer.constant(name)

    def tensor(self, name: str) -> TensorProto | None:
        """The initialiser called ``name``, or None."""
        if name in self._tensors:
            return self._tensors[name]
        if name in self._types or name in self._producers or self._outer is None:
            return None
        return self._outer.tensor(name)

    def type(self, name: str) -> TypeProto | None:
        """The type of a value, or None if it is unknown."""
        if name in self._tensors:
            return helper.make_tensor_type_proto(self._tensors[name].data_type, self._tensors[name].dims)
        if name in self._types:
            return self._types[name]
        return self._outer.type(name) if self._outer else None

    def set_type(self, name: str, value: TypeProto) -> None:
        """Set the type of a computed value in the index; the graph is not changed."""
        self._types[name] = value

    def forget(self, name: str) -> None:
        """Drop the description of a value whose type a rewrite changes, with the next edit; inference finds it anew."""
        self._forgotten.add(name)

    def rank(self, name: str) -> int | None:
        """Number of dimensions of the value ``name``, or None if it is unknown."""
        if name in self._tensors:
            return len(self._tensors[name].dims)
        value = self._types.get(name)
        if value is None:
            return self._outer.rank(name) if self._outer else None
        return len(value.tensor_type.shape.dim) if value.tensor_type.HasField("shape") else None

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Dimensions of the value ``name``, or None unless all of them are known."""
        if name in self._tensors:
            return tuple(self._tensors[name].dims)
        value = self._types.get(name)
        if value is None:
            return self._outer.shape(name) if self._outer else None
        return static_shape(value)

    def element_type(self, name: str) -> int:
        """ONNX element type of the value ``name``, or 0 if it is unknown."""
        if name in self._tensors:
            return int(self._tensors[name].data_type)
        value = self._types.get(name)
        if value is None:
            return self._outer.element_type(name) if self._outer else 0
        return int(value.tensor_type.elem_type)

    def fresh(self, hint: str) -> str:
        """A value name that starts with ``hint`` and is not yet used in the graph, nor around it, nor in a body.

        A body reads values around it by name, so a name that both define would make it read the wrong one.
        """
        if self._outer is not None:
            return self._outer.fresh(hint)
        if self._names is None:
            self._names = TakenNames((*self._types, *self._tensors, *self._producers))
            self._names.update(name for node in self.graph.node for name in names_inside(node))
        return self._names.fresh(hint)

    def fresh_node(self, hint: str) -> str:
        """A node name that starts with ``hint`` and is not yet used in the graph."""
        if self._node_names is None:
            self._node_names = TakenNames(node.name for node in self.graph.node)
        return self._node_names.fresh(hint)

    def add_constant(self, hint: str, values: Array) -> str:
        """Add an initialiser with a new name that starts with ``hint``; returns the name."""
        name = self.fresh(hint)
        self.set_constant(name, values)
        return name

    def set_constant(self, name: str, values: Array) -> None:
        """Make ``name`` an initialiser with these values. The caller removes the node that computed it."""
        tensor = numpy_helper.from_array(values, name) if self.is_nested else holding_tensor(values, name)
        self.graph.initializer.append(tensor)
        self._tensors[name] = self.graph.initializer[-1]

    def rewrite(self, rule: Callable[[NodeProto], Replacement]) -> tuple[str, ...]:
        """Replace each node by the nodes that ``rule`` returns; None keeps the node.

        Returns:
            The names of the replaced nodes.

        Raises:
            MalformedError: ``rule`` raised one of ``MALFORMED``.
        """
        kept: list[NodeProto] = []
        changed: list[str] = []
        for node in self.graph.node:
            try:
                replacement = rule(node)
            except MALFORMED as error:
                raise MalformedError(
                    f"{describe_node(node)} is malformed: its attributes, inputs or shapes do not fit the operator"
                ) from error
            if replacement is None:
                kept.append(node)
            else:
                kept.extend(replacement)
                changed.append(node.name)
        if changed:
            self.set_nodes(kept)
        return tuple(changed)

    def set_nodes(self, nodes: Sequence[NodeProto]) -> None:
        """Replace the graph's node list and rebuild the index."""
        copies = [_copy(node) for node in nodes]
        del self.graph.node[:]
        self.graph.node.extend(copies)
        if self._forgotten:
            drop_named(self.graph.value_info, self._forgotten.__contains__)
            self._forgotten.clear()
        self.refresh()

    def redirect(self, renamed: Mapping[str, str]) -> None:
        """Rename inputs of nodes, in bodies too: old value name to new. Chains of renamed values are followed."""
        resolved = {name: follow(name, renamed) for name in renamed}
        if resolved:
            rename_reads(self.graph, resolved)
            self.refresh()


def _consumers_in(graph: GraphProto) -> dict[str, list[NodeProto]]:
    consumers: dict[str, list[NodeProto]] = defaultdict(list)
    for node in graph.node:
        for name in names_read(node):
            consumers[name].append(node)
    return consumers


def editors(graph: GraphProto, outer: GraphEditor | None = None, owner: str = "") -> Iterator[GraphEditor]:
    """Yield an editor for ``graph`` and for each body inside it, innermost first."""
    editor, has_bodies = GraphEditor(graph, outer, owner), False
    for node in graph.node:
        for body in subgraphs(node) if node.attribute else ():
            has_bodies = True
            yield from editors(body, editor, "" if node.domain else node.op_type)
    if has_bodies:
        editor.refresh()
    yield editor


def rewrite_nodes(model: ModelProto, rule: Rule, operators: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Apply ``rule`` to all nodes of standard operators, in bodies too; returns the names of the replaced nodes.

    Args:
        model: changed in place.
        rule: as for ``GraphEditor.rewrite``.
        operators: those that the rule is for; all if there are none.
    """
    changed: list[str] = []
    for editor in editors(model.graph):
        changed.extend(editor.rewrite(partial(_standard_only, rule=rule, editor=editor, operators=operators)))
    return tuple(changed)


def _standard_only(node: NodeProto, rule: Rule, editor: GraphEditor, operators: frozenset[str]) -> Replacement:
    is_other = node.domain or (operators and node.op_type not in operators)
    return None if is_other else rule(node, editor)


def node_rewrite(*operators: str) -> Callable[[Rule], Callable[[ModelProto], tuple[str, ...]]]:
    """Make a rewrite of models of a rule for nodes of some operators, or of all: ``rewrite_nodes`` by that rule."""

    def decorated(rule: Rule) -> Callable[[ModelProto], tuple[str, ...]]:
        @wraps(rule)
        def rewrite(model: ModelProto) -> tuple[str, ...]:
            return rewrite_nodes(model, rule, frozenset(operators))

        return rewrite

    return decorated


def static_shape(value: TypeProto) -> tuple[int, ...] | None:
    """Dimensions of a tensor type, or None unless all of them are numbers."""
    tensor = value.tensor_type
    if not tensor.HasField("shape"):
        return None
    # Not by generators: a long model asks for hundreds of thousands of shapes.
    sizes = []
    for dim in tensor.shape.dim:
        if not dim.HasField("dim_value"):
            return None
        sizes.append(dim.dim_value)
    return tuple(sizes)


def _copy(node: NodeProto) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy


def follow(name: str, renamed: Mapping[str, str]) -> str:
    """The name at the end of a chain of renamings."""
    while name in renamed:
        name = renamed[name]
    return name


def rename_reads(graph: GraphProto, renamed: Mapping[str, str]) -> None:
    """Rename what nodes of a graph read, in place: old value name to new.

    Names that bodies read are renamed too, except for those that they define themselves.
    """
    for node in graph.node:
        for index, name in enumerate(node.input):
            if name in renamed:
                node.input[index] = renamed[name]
        for body in subgraphs(node) if node.attribute else ():
            hidden = set(defined_names(body))
            visible = {old: new for old, new in renamed.items() if old not in hidden}
            rename_reads(body, visible)
            for value in body.output:
                value.name = visible.get(value.name, value.name)
