"""Sorts the elements that TopK selects where a model leaves their order open, as IREE gives no other order."""

from __future__ import annotations

from onnx import ModelProto, NodeProto

from sartor.onnx_model.graphs.walk import nodes

_SORTED = "sorted"


def sort_selections(model: ModelProto) -> tuple[str, ...]:
    """Sort the results of ``TopK`` with ``sorted=0``, in place; returns the names of the nodes.

    ONNX Runtime leaves such elements in the order of its heap. Where results are checked, it sorts them too.
    """
    unsorted = [node for node in nodes(model.graph) if _is_unsorted(node)]
    for node in unsorted:
        for attribute in node.attribute:
            if attribute.name == _SORTED:
                attribute.i = 1
    return tuple(node.name for node in unsorted)


def _is_unsorted(node: NodeProto) -> bool:
    return (
        node.op_type == "TopK"
        and not node.domain
        and any(attribute.name == _SORTED and not attribute.i for attribute in node.attribute)
    )
