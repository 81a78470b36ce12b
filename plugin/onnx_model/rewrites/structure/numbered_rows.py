"""Tables that are computed row by row from the row's number, up to a number that data decides, and rows taken of them.

Exporters write rotary embeddings so: cosines of all positions up to the largest one given, of which those given are
taken. Only the rows that are taken are computed here, whose number is known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from onnx import ModelProto, NodeProto, ValueInfoProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes
from sartor.onnx_model.graphs.guarded_slices import inferred_types
from sartor.onnx_model.graphs.infer import without_weights
from sartor.onnx_model.operator_types.schemas import CONTRIB_DOMAIN

_Sizes = Mapping[str, Sequence[int | None]]

_UNARY = frozenset(
    {"Abs", "Cast", "Cos", "Exp", "Identity", "Log", "Neg", "Reciprocal", "Sigmoid", "Sin", "Sqrt", "Tanh"}
)
_BINARY = frozenset({"Add", "Div", "Mul", "Pow", "Sub"})
_MOST_NODES = 16


def take_numbered_rows(model: ModelProto) -> tuple[str, ...]:
    """Compute the rows that are taken of tables of open length from their numbers; returns names of nodes."""
    editor = GraphEditor(model.graph)
    if not any(node.op_type == "Range" and not editor.is_constant(node.input[1]) for node in editor.nodes):
        return ()
    sizes = _open_sizes(model)
    return editor.rewrite(lambda node: _taken(node, editor, sizes))


def _open_sizes(model: ModelProto) -> _Sizes:
    """The sizes of all values of known rank, by name, None where they are open."""
    graph = inferred_types(without_weights(model)).graph
    values = [value for value in (*graph.input, *graph.value_info, *graph.output) if _has_shape(value)]
    sizes = {
        value.name: [dim.dim_value if dim.HasField("dim_value") else None for dim in value.type.tensor_type.shape.dim]
        for value in values
    }
    return {**sizes, **{tensor.name: list(tensor.dims) for tensor in model.graph.initializer}}


def _has_shape(value: ValueInfoProto) -> bool:
    return value.type.HasField("tensor_type") and value.type.tensor_type.HasField("shape")


def _taken(node: NodeProto, editor: GraphEditor, sizes: _Sizes) -> list[NodeProto] | None:
    """A node that takes rows of tables, with the rows that it takes instead of these."""
    if (node.domain, node.op_type) == ("", "Gather") and not attributes(node).get("axis", 0):
        tables = [0]
    elif (node.domain, node.op_type) == (CONTRIB_DOMAIN, "RotaryEmbedding"):
        tables = [2, 3]
    else:
        return None
    numbers = sizes.get(node.input[1])
    if numbers is None:
        return None
    known = [size for size in numbers if size is not None]
    # A single number is the first of as many as there are in a row of the operand.
    if len(known) < len(numbers) or (node.domain and len(known) != 2):
        return None
    if any(sizes.get(node.input[index], [0])[0] is not None for index in tables):
        return None
    rows = _Rows(Emitter(editor, node), editor, sizes)
    operands = [rows.of(name) if index in tables else name for index, name in enumerate(node.input)]
    if None in operands:
        return None
    inputs = [name or "" for name in operands]
    inputs[1] = rows.emit.constant(np.arange(math.prod(known), dtype=np.int64).reshape(known), "numbers")
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = inputs
    return [*rows.emit.nodes, copy]


class _Rows:
    """Emits the rows of tables whose numbers a Gather reads, as tables of their own."""

    def __init__(self, emit: Emitter, editor: GraphEditor, sizes: _Sizes) -> None:
        self.emit, self._editor, self._sizes = emit, editor, sizes
        self._known: dict[str, str | None] = {}

    def of(self, name: str) -> str | None:
        """The rows of a table; None if they do not follow from their numbers, each from its own."""
        if name in self._known:
            return self._known[name]
        node = self._editor.producer(name)
        if node is None or node.domain or len(self._known) > _MOST_NODES:
            return None
        self._known[name] = self._numbers(node) if node.op_type == "Range" else self._computed(node)
        return self._known[name]

    def _numbers(self, node: NodeProto) -> str | None:
        """The numbers that the Gather reads, those from the end on counted from the beginning."""
        start, step = self._editor.constant(node.input[0]), self._editor.constant(node.input[2])
        if start is None or step is None or start.dtype.kind != "i" or start.item() != 0 or step.item() != 1:
            return None
        emit, read = self.emit, self.emit.node.input[1]
        count = emit("Reshape", node.input[1], emit.constant([], "scalar"), part="count")
        flat = emit("Reshape", read, emit.constant([-1], "flat"), part="numbers")
        kind = self._editor.element_type(node.input[0])
        numbers = flat if self._editor.element_type(read) == kind else emit("Cast", flat, part="numbers", to=kind)
        is_behind = emit("Less", numbers, emit.constant(start, "zero", start.dtype), part="from_the_end")
        return emit("Where", is_behind, emit("Add", numbers, count, part="counted"), numbers, part="numbers")

    def _computed(self, node: NodeProto) -> str | None:
        operands = self._operands(node)
        if operands is None:
            return None
        options = attributes(node)
        return self.emit(node.op_type, *operands, part=node.op_type.lower(), **options)

    def _operands(self, node: NodeProto) -> list[str] | None:
        """What a node reads, with rows for tables; None if it does not compute each row from that row alone."""
        if node.output[0] not in self._sizes:
            return None
        rank, first, others = len(self._sizes[node.output[0]]), node.input[0], node.input[1:]
        operands: list[str | None] = [None]
        if node.op_type in _BINARY:
            operands = [name if self._is_same_for_all(name, rank) else self._aligned(name, rank) for name in node.input]
        elif node.op_type == "Concat" and attributes(node)["axis"] % rank:
            operands = [self._aligned(name, rank) for name in node.input]
        elif self._keeps_rows(node, rank):
            operands = [self.of(first), *others]
        known = [name for name in operands if name is not None]
        return known if len(known) == len(operands) else None

    def _aligned(self, name: str, rank: int) -> str | None:
        """Rows of a table whose first axis is that of a result."""
        return self.of(name) if len(self._sizes.get(name, [])) == rank else None

    def _is_same_for_all(self, name: str, rank: int) -> bool:
        """Whether all rows of a result read the same numbers of a constant."""
        shape = self._editor.shape(name) if self._editor.is_constant(name) else None
        return shape is not None and (len(shape) < rank or shape[0] == 1)

    def _keeps_rows(self, node: NodeProto, rank: int) -> bool:
        """Whether a node of one table leaves each row one."""
        constant = self._editor.constant(node.input[1]) if len(node.input) > 1 else None
        if node.op_type in _UNARY or constant is None:
            return node.op_type in _UNARY
        if node.op_type == "MatMul":
            return rank > 1 and constant.ndim <= 2
        if node.op_type == "Unsqueeze":
            return all(axis % rank for axis in constant.ravel().tolist())
        sizes = self._sizes.get(node.input[0], [None, None])[1:]
        if node.op_type != "Reshape" or None in sizes or constant[:1] != [-1] or 0 in constant:
            return False
        return math.prod(map(int, constant[1:])) == math.prod(size or 0 for size in sizes)
