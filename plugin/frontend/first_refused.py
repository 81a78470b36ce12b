"""Finds the node for which IREE refuses a model, where its diagnostic does not say which.

Operations that its lowering makes on the way have no location, or that of no node.
"""

from __future__ import annotations

from collections.abc import Callable

from onnx import ModelProto, NodeProto

from sartor.frontend.onnx_parts import Splitter


def first_refused(model: ModelProto, is_refused: Callable[[ModelProto], bool]) -> NodeProto | None:
    """The last node of the shortest beginning of a model that is refused, by about log2 of its nodes trials.

    Args:
        model: refused as a whole; nodes are sorted, the types of all values are inferred.
        is_refused: whether another model is refused.

    Returns:
        The node, or None if the model has none.
    """
    splitter = Splitter(model)
    accepted, refused = 0, len(model.graph.node)
    while refused - accepted > 1:
        middle = (accepted + refused) // 2
        if is_refused(splitter.part(0, middle)):
            refused = middle
        else:
            accepted = middle
    return model.graph.node[refused - 1] if refused else None
