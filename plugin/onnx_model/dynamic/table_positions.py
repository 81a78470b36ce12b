"""Positions that follow from sizes alone, beside the tables that they index, which may have fewer rows."""

from __future__ import annotations

import math

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from sartor.onnx_model.graphs.evaluator_errors import EVALUATOR_ERRORS
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, opset
from sartor.onnx_model.graphs.walk import subgraphs

# Positions are counted in few steps, and their vectors are no longer than a sequence.
_MOST_NODES, _MOST_ELEMENTS = 64, 1 << 16
# Larger constants are weights, whose values inference does not keep.
_MOST_VALUES = 1024


def outside_table(model: ModelProto) -> int | None:
    """The index of the first Gather that takes rows of a constant table by positions which it does not have.

    Args:
        model: with the shapes that inference finds.
    """
    editor = GraphEditor(model.graph)
    for index, node in enumerate(editor.nodes):
        table = editor.shape(node.input[0]) if node.op_type == "Gather" and not node.domain else None
        if not table or not editor.is_constant(node.input[0]):
            continue
        rows, positions = table[attributes(node).get("axis", 0)], _computed(node.input[1], editor, opset(model))
        if positions is not None and ((positions >= rows) | (positions < -rows)).any():
            return index
    return None


def fewest_rows(model: ModelProto) -> int | None:
    """The rows of the shortest constant table that is indexed by what follows from sizes; None if there is none.

    Args:
        model: whose shapes need not be known.
    """
    editor = GraphEditor(model.graph)
    rows = [
        table[attributes(node).get("axis", 0)]
        for node in editor.nodes
        if node.op_type == "Gather" and not node.domain and (table := editor.shape(node.input[0]))
        if editor.is_constant(node.input[0]) and _follows_from_sizes(node.input[1], editor)
    ]
    return min(rows, default=None)


def _follows_from_sizes(name: str, editor: GraphEditor) -> bool:
    pending, seen, has_sizes = [name], {name}, False
    while pending:
        current = pending.pop()
        node = editor.producer(current)
        if node is not None and node.op_type == "Shape" and not node.domain:
            has_sizes = True
        elif node is not None:
            fresh = {read for read in node.input if read} - seen
            seen |= fresh
            pending.extend(fresh)
        elif not editor.is_constant(current):
            return False
        if len(seen) > _MOST_NODES:
            return False
    return has_sizes


def _computed(name: str, editor: GraphEditor, version: int) -> Array | None:
    """The value of what is computed of sizes and constants alone; None for others."""
    chain = _chain(name, editor)
    if chain is None:
        return None
    needed, values = chain
    graph = GraphProto(name="positions", output=[helper.make_empty_tensor_value_info(name)])
    graph.node.extend(node for node in editor.nodes if node.output[0] in needed)
    graph.initializer.extend(numpy_helper.from_array(value, known) for known, value in values.items())
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
    try:
        return np.asarray(next(iter(ReferenceEvaluator(model).run(None, {}))))
    except EVALUATOR_ERRORS:
        return None


def _chain(name: str, editor: GraphEditor) -> tuple[set[str], dict[str, Array]] | None:
    """The first results of the nodes that a value is computed by, and the constants and shapes that they read; None if
    they read data."""
    needed, values, pending = set[str](), dict[str, Array](), [name]
    while pending:
        current = pending.pop()
        node = editor.producer(current)
        known = _known(current, node, editor)
        if known is not None:
            values[current] = known
            continue
        if node is None or node.domain or any(True for _ in subgraphs(node)) or len(needed) > _MOST_NODES:
            return None
        # What is longer than a sequence is no position.
        if math.prod(editor.shape(current) or ()) > _MOST_ELEMENTS:
            return None
        if node.output[0] not in needed:
            needed.add(node.output[0])
            pending.extend(read for read in node.input if read)
    return needed, values


def _known(name: str, node: NodeProto | None, editor: GraphEditor) -> Array | None:
    """The value of a small constant, or of a shape."""
    tensor = editor.tensor(name)
    if tensor is not None:
        return editor.constant(name) if math.prod(tensor.dims) <= _MOST_VALUES else None
    shape = editor.shape(node.input[0]) if node is not None and node.op_type == "Shape" and not node.domain else None
    if node is None or shape is None:
        return None
    given = attributes(node)
    return np.asarray(shape[given.get("start", 0) : given.get("end")], np.int64)
