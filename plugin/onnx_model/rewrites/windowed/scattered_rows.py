"""Writes into a few rows of a tensor: of a cache of fixed length, or of anything else by indices that are computed.

Both become a ``ScatterND`` of rows into a matrix, by the number of each row. What that is lowered to writes nothing
else of the matrix (``written_rows.py``), so that a state is written where it lies (``written_over.py`` of the linking).
"""

from __future__ import annotations

import math

import numpy as np
from onnx import NodeProto, TensorProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, node_rewrite, optional_input

# Others have no bytes of their own, or are no numbers.
_KINDS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT8, TensorProto.INT32, TensorProto.INT64})
_LEAST_ROW = 2


@node_rewrite("TensorScatter", "ScatterND")
def scatter_rows(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Write them as ``ScatterND`` of rows into a matrix. All sizes have to be those of the run: numbers of rows are
    made of them."""
    shapes = [editor.shape(node.input[index]) for index in (0, 1)]
    if editor.element_type(node.input[0]) not in _KINDS or any(not shape or 0 in shape for shape in shapes):
        return None
    cache, other = (tuple(shape or ()) for shape in shapes)
    return (_of_cache if node.op_type == "TensorScatter" else _of_indices)(node, editor, cache, other)


def _of_cache(
    node: NodeProto, editor: GraphEditor, cache: tuple[int, ...], update: tuple[int, ...]
) -> list[NodeProto] | None:
    """``TensorScatter``: each sequence has its rows written one after the other, from where writing begins. Where they
    would end behind the last row they are written before it."""
    settings = attributes(node)
    axis = settings.get("axis", -2) % len(cache)
    size, count, row = cache[axis], update[axis], math.prod(cache[axis + 1 :])
    if row < _LEAST_ROW or count > size:
        return None
    emit, outer = Emitter(editor, node), math.prod(cache[:axis])
    first = emit.constant(np.arange(outer, dtype=np.int64).reshape(outer, 1) * size, "first")
    step = emit.constant(np.arange(count, dtype=np.int64).reshape(1, count), "step")
    places = step
    if begin := optional_input(node, 2):
        begin = _begins(emit, begin, size, count, outer // cache[0])
        places = emit("Add", begin, step, part="place")
    if settings.get("mode", "linear") == "circular":
        places = emit("Mod", places, emit.constant(size, "length"), part="around")
    numbers = emit("Reshape", emit("Add", places, first, part="number"), emit.constant([-1, 1], "column"), part="rows")
    return _written(emit, cache, numbers, node.input[1], row)


def _begins(emit: Emitter, begin: str, size: int, count: int, repeats: int) -> str:
    """Where writing begins in each part of the cache that has all positions of something, ``[parts, 1]``."""
    if attributes(emit.node).get("mode", "linear") == "circular":
        begin = emit("Mod", begin, emit.constant(size, "length"), part="begin_around")
    else:
        begin = emit("Min", begin, emit.constant(size - count, "last_begin"), part="begin_before_end")
        begin = emit("Max", begin, emit.constant(0, "zero"), part="begin_inside")
    column = emit("Reshape", begin, emit.constant([-1, 1, 1], "parts"), part="begin")
    shape = emit.constant([1, repeats, 1], "repeated")
    return emit("Reshape", emit("Expand", column, shape, part="begins"), emit.constant([-1, 1], "column"), part="each")


def _of_indices(
    node: NodeProto, editor: GraphEditor, data: tuple[int, ...], table: tuple[int, ...]
) -> list[NodeProto] | None:
    """``ScatterND``: the numbers of an index are one, which counts rows of all dimensions that they index."""
    depth = table[-1]
    row = math.prod(data[depth:])
    is_plain = attributes(node).get("reduction", "none") == "none"
    if not is_plain or row < _LEAST_ROW or depth > len(data) or editor.is_constant(node.input[1]):
        return None
    if (len(data), len(table), depth) == (2, 2, 1):
        return None
    emit = Emitter(editor, node)
    numbers = node.input[1] if depth == 1 else _joined(emit, data[:depth])
    numbers = emit("Reshape", numbers, emit.constant([-1, 1], "column"), part="rows")
    return _written(emit, data, numbers, node.input[2], row)


def _joined(emit: Emitter, sizes: tuple[int, ...]) -> str:
    """The number of the row that the numbers of each index tell together; each is within its own size."""
    rows, zero = "", emit.constant(0, "zero")
    for axis, size in enumerate(sizes):
        number = emit("Gather", emit.node.input[1], emit.constant(axis, "axis"), part="number", axis=-1)
        number = emit("Min", number, emit.constant(size - 1, "last"), part="before_end")
        counted = emit("Add", number, emit.constant(size, "size"), part="from_end")
        number = emit("Where", emit("Less", number, zero, part="is_negative"), counted, number, part="counted")
        number = emit("Max", number, zero, part="inside")
        stride = emit.constant(math.prod(sizes[axis + 1 :]), "stride")
        number = emit("Mul", number, stride, part="rows_before")
        rows = emit("Add", rows, number, part="row") if rows else number
    return rows


def _written(emit: Emitter, shape: tuple[int, ...], numbers: str, update: str, row: int) -> list[NodeProto]:
    node, flat = emit.node, emit.constant([-1, row], "rows")
    matrix = emit("Reshape", node.input[0], flat, part="matrix")
    made = emit("ScatterND", matrix, numbers, emit("Reshape", update, flat, part="new_rows"))
    emit("Reshape", made, emit.constant(list(shape), "shape"), part="whole", output=node.output[0])
    return emit.nodes
