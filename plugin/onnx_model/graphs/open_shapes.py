"""Why the shape of a value is not known although those of all inputs are."""

from __future__ import annotations

from collections.abc import Iterable

from onnx import NodeProto

from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.onnx_model.graphs.walk import describe_node

# Their results have as many elements as data says. Others compute a shape from operands.
_COUNTING = frozenset({"Compress", "NonMaxSuppression", "NonZero", "Range", "Unique"})


def why_open(names: Iterable[str], editor: GraphEditor) -> str:
    """A phrase for messages that says which of some values has an open shape, from which node that comes, and what to
    do about it.

    Args:
        names: of values; the first one with an open shape is told about.
        editor: of their graph, in which all shapes are inferred that can be.
    """
    name = next((known for known in names if known and editor.shape(known) is None), "")
    if not name:
        return "their element types are not known; export the model with the types of inner values"
    origin = open_origin(name, editor)
    if origin is None:
        return f"the shape of '{name}' is not known; declare it, or export the model with shapes"
    if origin.op_type in _COUNTING:
        return (
            f"the shape of '{name}' depends on data through {describe_node(origin)}; --shape does not settle it: give "
            "that a fixed size before exporting, as large as is ever needed"
        )
    return (
        f"the shape of '{name}' is not known, nor that of what {describe_node(origin)} computes; --shape does not "
        "settle it: give the node constant operands before exporting"
    )


def open_origin(name: str, editor: GraphEditor) -> NodeProto | None:
    """The first node before a value whose result has an open shape while the shapes of all that it reads are known."""
    seen, node = set[str](), editor.producer(name)
    while node is not None:
        before = next(
            (known for known in node.input if known and editor.shape(known) is None and known not in seen), None
        )
        if before is None:
            return node
        seen.add(before)
        following = editor.producer(before)
        if following is None:
            return node
        node = following
    return None
