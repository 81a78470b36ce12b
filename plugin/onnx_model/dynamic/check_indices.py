"""Refuses constant indices outside what they index: to ONNX they are an error, whatever a call takes."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import ModelProto, NodeProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes
from sartor.onnx_model.graphs.walk import describe_node

_ALONG_AN_AXIS = ("Gather", "GatherElements", "ScatterElements")
_BY_SEVERAL_NUMBERS = ("GatherND", "ScatterND")


def check_indices(model: ModelProto) -> tuple[str, ...]:
    """Check constant indices of the main graph; changes nothing.

    Args:
        model: all of its nodes are computed in every call.

    Raises:
        UnsupportedModelError: an index is outside; the message names the node, and what is permitted.
    """
    editor = GraphEditor(model.graph)
    for node in editor.nodes:
        for numbers, extent in _indices(node, editor):
            outside = numbers[(numbers < -extent) | (numbers >= extent)]
            if outside.size:
                raise UnsupportedModelError(
                    f"{describe_node(node)} has the constant index {outside[0]} for a dimension of {extent}, where "
                    f"{-extent} to {extent - 1} are permitted; correct the indices, or give larger inputs with --shape"
                )
    return ()


def _indices(node: NodeProto, editor: GraphEditor) -> Iterator[tuple[Array, int]]:
    """The constant indices of a node, each with the extent of the dimension that they index."""
    if node.domain or node.op_type not in (*_ALONG_AN_AXIS, *_BY_SEVERAL_NUMBERS):
        return
    shape, indices = editor.shape(node.input[0]), editor.constant(node.input[1])
    if shape is None or indices is None:
        return
    given = attributes(node)
    if node.op_type in _ALONG_AN_AXIS:
        axis = int(given.get("axis", 0))
        if -len(shape) <= axis < len(shape):  # another one is refused with the shapes
            yield indices.reshape(-1), shape[axis]
        return
    first = int(given.get("batch_dims", 0))
    for column, extent in enumerate(shape[first : first + indices.shape[-1]]):
        yield indices[..., column].reshape(-1), extent
