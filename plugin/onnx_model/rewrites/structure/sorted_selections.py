"""Sorts the elements that TopK selects where a model leaves their order open, as IREE gives no other order."""

from __future__ import annotations

from onnx import ModelProto

from sartor.onnx_model.graphs.prepared import mark_as_reference
from sartor.onnx_model.graphs.walk import nodes

_SORTED = "sorted"


def sort_selections(model: ModelProto) -> tuple[str, ...]:
    """Sort the results of ``TopK`` with ``sorted=0``, in place; returns the names of the nodes.

    ONNX Runtime leaves such elements in the order of its heap. So the model is marked: what it computes is compared
    with the prepared model's results, which are sorted too.
    """
    changed = []
    for node in nodes(model.graph):
        if node.op_type != "TopK" or node.domain:
            continue
        for attribute in node.attribute:
            if attribute.name == _SORTED and not attribute.i:
                attribute.i = 1
                changed.append(node.name)
    if changed:
        mark_as_reference(model)
    return tuple(changed)
