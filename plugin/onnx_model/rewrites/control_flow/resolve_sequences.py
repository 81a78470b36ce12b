"""Resolves sequences and optionals of known elements, so that only tensors remain of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, helper

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, opset, optional_input
from sartor.onnx_model.rewrites.control_flow.unroll_loops import Body

# Elements that a sequence may have; each becomes a node or more.
_MAX_ELEMENTS = 1024


@dataclass(frozen=True)
class Elements:
    """The tensors of a sequence, by name, and their element type, which an empty one has too."""

    names: tuple[str, ...]
    kind: int = TensorProto.FLOAT


@dataclass(frozen=True)
class Maybe:
    """An optional: the value that it holds, by name, or an empty name and the type that it may hold."""

    content: str
    kind: TypeProto | None = None


def resolve_sequences(model: ModelProto) -> tuple[str, ...]:
    """Replace operators on sequences and optionals whose elements are known; returns the names of the nodes.

    What is left of a sequence is one ``SequenceConstruct`` or ``SequenceEmpty``, which is dropped unless it is read.
    The nodes of the main graph must be sorted. Positions and sizes that are computed have to be folded before.
    """
    editor = GraphEditor(model.graph)
    return editor.rewrite(_Resolver(editor, opset(model)))


def known_value(name: str, editor: GraphEditor) -> Elements | Maybe | None:
    """The elements of a sequence, or the content of an optional, where ``resolve_sequences`` has found them."""
    node = editor.producer(name)
    return _stated(node, editor) if node is not None and _RULES.get(node.op_type) is _state else None


def _stated(node: NodeProto, editor: GraphEditor) -> Elements | Maybe:
    if node.op_type == "Optional":
        return Maybe(optional_input(node, 0), attributes(node).get("type"))
    kind = editor.element_type(node.input[0]) if node.input else 0
    return Elements(tuple(node.input), kind or attributes(node).get("dtype", TensorProto.FLOAT))


class _Resolver:
    """A rule for nodes in their order, which keeps what each sequence and optional has been found to hold."""

    def __init__(self, editor: GraphEditor, version: int) -> None:
        self.editor = editor
        self.version = version
        self.known: dict[str, Elements | Maybe] = {}

    def __call__(self, node: NodeProto) -> list[NodeProto] | None:
        rule = _RULES.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        return rule(self, node) if rule else None

    def elements(self, name: str) -> Elements | None:
        known = self.known.get(name)
        return known if isinstance(known, Elements) else None

    def position(self, node: NodeProto, index: int, count: int, last: int) -> int | None:
        """A position operand, counted from the beginning, by default the last one; None if it is computed."""
        name = optional_input(node, index)
        given = self.editor.constant(name) if name else np.asarray(last)
        if given is None:
            return None
        position = int(given.item())
        if not -count <= position <= last:
            raise IndexError(position)
        return position + count if position < 0 else position

    def sequence(self, node: NodeProto, output: str, elements: Elements) -> NodeProto:
        """The node that states a sequence."""
        self.known[output] = elements
        if elements.names:
            return helper.make_node("SequenceConstruct", elements.names, [output], name=node.name)
        return helper.make_node("SequenceEmpty", [], [output], name=node.name, dtype=elements.kind)

    def same(self, node: NodeProto, source: str) -> list[NodeProto] | None:
        """The node's output as a second name of a value."""
        known = self.known.get(source)
        if isinstance(known, Elements):
            return [self.sequence(node, node.output[0], known)]
        if isinstance(known, Maybe):
            self.known[node.output[0]] = known
            content = [known.content] if known.content else []
            return [helper.make_node("Optional", content, list(node.output), name=node.name, type=known.kind)]
        if known is None and node.op_type != "Identity":
            return [helper.make_node("Identity", [source], list(node.output), name=node.name)]
        return None


def _state(resolver: _Resolver, node: NodeProto) -> None:
    resolver.known[node.output[0]] = _stated(node, resolver.editor)


def _insert(resolver: _Resolver, node: NodeProto) -> list[NodeProto] | None:
    elements = resolver.elements(node.input[0])
    if elements is None:
        return None
    count = len(elements.names)
    position = resolver.position(node, 2, count, count)
    if position is None:
        return None
    names = (*elements.names[:position], node.input[1], *elements.names[position:])
    return [resolver.sequence(node, node.output[0], Elements(names, elements.kind))]


def _erase(resolver: _Resolver, node: NodeProto) -> list[NodeProto] | None:
    elements = resolver.elements(node.input[0])
    if elements is None:
        return None
    count = len(elements.names)
    position = resolver.position(node, 1, count, count - 1)
    if position is None:
        return None
    names = (*elements.names[:position], *elements.names[position + 1 :])
    return [resolver.sequence(node, node.output[0], Elements(names, elements.kind))]


def _at(resolver: _Resolver, node: NodeProto) -> list[NodeProto] | None:
    elements = resolver.elements(node.input[0])
    if elements is None:
        return None
    count = len(elements.names)
    position = resolver.position(node, 1, count, count - 1)
    return None if position is None else resolver.same(node, elements.names[position])


def _length(resolver: _Resolver, node: NodeProto) -> list[NodeProto] | None:
    elements = resolver.elements(node.input[0])
    if elements is None:
        return None
    resolver.editor.set_constant(node.output[0], np.asarray(len(elements.names), np.int64))
    return []


def _concat(resolver: _Resolver, node: NodeProto) -> list[NodeProto] | None:
    elements = resolver.elements(node.input[0])
    if elements is None or not elements.names:
        return None
    emit, options = Emitter(resolver.editor, node), attributes(node)
    names = list(elements.names)
    if options.get("new_axis"):
        names = [emit.raised(name, options["axis"], resolver.version) for name in names]
    emit("Concat", *names, output=node.output[0], axis=options["axis"])
    return emit.nodes


def _split(resolver: _Resolver, node: NodeProto) -> list[NodeProto] | None:
    shape, options = resolver.editor.shape(node.input[0]), attributes(node)
    given = resolver.editor.constant(node.input[1]) if optional_input(node, 1) else None
    if shape is None or (given is None and optional_input(node, 1)):
        return None
    axis = options.get("axis", 0) % len(shape)
    chunk = 1 if given is None else int(given.item()) if not given.ndim else 0
    # The last of equal parts may be smaller.
    bounds = np.arange(0, shape[axis], chunk) if chunk else np.cumsum([0, *(given if given is not None else ())])[:-1]
    if len(bounds) > _MAX_ELEMENTS:
        return None
    emit, names = Emitter(resolver.editor, node), []
    # A dimension of size 0 has no parts.
    ends = [*bounds[1:], shape[axis]][: len(bounds)]
    for begin, end in zip(bounds, ends, strict=True):
        if given is None and not options.get("keepdims", 1):
            index = emit.constant(np.asarray(begin, np.int64), "index")
            names.append(emit("Gather", node.input[0], index, part="element", axis=axis))
        else:
            cut = [
                emit.constant([int(bound)], hint) for bound, hint in ((begin, "begin"), (end, "end"), (axis, "axis"))
            ]
            names.append(emit("Slice", node.input[0], *cut, part="element"))
    kind = resolver.editor.element_type(node.input[0])
    return [*emit.nodes, resolver.sequence(node, node.output[0], Elements(tuple(names), kind))]


def _identity(resolver: _Resolver, node: NodeProto) -> list[NodeProto] | None:
    return resolver.same(node, node.input[0])


def _get(resolver: _Resolver, node: NodeProto) -> list[NodeProto] | None:
    known = resolver.known.get(node.input[0])
    if isinstance(known, Maybe):
        return resolver.same(node, known.content) if known.content else None
    is_tensor = _kind(resolver, node.input[0]) == "tensor_type"
    return resolver.same(node, node.input[0]) if known is not None or is_tensor else None


def _has(resolver: _Resolver, node: NodeProto) -> list[NodeProto] | None:
    name = optional_input(node, 0)
    known = resolver.known.get(name)
    if name and known is None and _kind(resolver, name) not in ("tensor_type", "sequence_type"):
        return None
    has = bool(known.content) if isinstance(known, Maybe) else bool(name)
    resolver.editor.set_constant(node.output[0], np.asarray(has))
    return []


def _kind(resolver: _Resolver, name: str) -> str | None:
    type_of_value = resolver.editor.type(name)
    kind: str | None = type_of_value.WhichOneof("value") if type_of_value is not None else None
    return kind


def _map(resolver: _Resolver, node: NodeProto) -> list[NodeProto] | None:
    """Write out the body once per element; other operands than sequences are the same for all."""
    mapped = [resolver.elements(name) for name in node.input]
    count = len(mapped[0].names) if mapped[0] is not None else 0
    emit, editor = Emitter(resolver.editor, node), resolver.editor
    body = Body(attributes(node)["body"], emit)
    unknown = any(
        elements is None and _kind(resolver, name) != "tensor_type"
        for name, elements in zip(node.input, mapped, strict=True)
    )
    if mapped[0] is None or unknown or not body.is_small(count):
        return None
    steps = []
    for step in range(count):
        operands = [
            elements.names[step] if elements else name for name, elements in zip(node.input, mapped, strict=True)
        ]
        steps.append(body.step(operands))
    kinds = [value.type.tensor_type.elem_type for value in body.graph.output]
    stated = [
        resolver.sequence(node, output, Elements(tuple(results[index] for results in steps), kinds[index]))
        for index, output in enumerate(node.output)
    ]
    for copy in stated[1:]:
        copy.name = editor.fresh_node(node.name)
    return [*emit.nodes, *stated]


_RULES: Mapping[str, Callable[[_Resolver, NodeProto], list[NodeProto] | None]] = {
    "ConcatFromSequence": _concat,
    "Identity": _identity,
    "Optional": _state,
    "OptionalGetElement": _get,
    "OptionalHasElement": _has,
    "SequenceAt": _at,
    "SequenceConstruct": _state,
    "SequenceEmpty": _state,
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _length,
    "SequenceMap": _map,
    "SplitToSequence": _split,
}

OPERATORS = frozenset(_RULES) - {"Identity"}
"""Operators that make or take sequences and optionals; what is left of them in a model, nothing can import."""
