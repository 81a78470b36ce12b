"""Tells the elements of a head of caches whose exporter left them open, as ONNX Runtime's model builder does: they
follow from the product that computes what GroupQueryAttention takes.
"""

from __future__ import annotations

from onnx import ModelProto, NodeProto

from sartor.onnx_model.graphs.graph import GraphEditor, attributes, optional_input

_OPERATOR, _MICROSOFT = "GroupQueryAttention", "com.microsoft"
_KEY, _CACHES = 1, (3, 4)
_RANK = 4
# Operators whose results have as many columns as an operand: biases, and conversions.
_KEEPING = frozenset({"Add", "Cast", "Identity"})


def know_widths(model: ModelProto) -> None:
    """Declare the last dimension of caches, in place, where all attentions that leave it open by one name agree."""
    editor, widths_of = GraphEditor(model.graph), dict[str, set[int]]()
    for node in model.graph.node:
        if node.op_type == _OPERATOR and node.domain == _MICROSOFT:
            for symbol in _open_widths(node, editor):
                widths_of.setdefault(symbol, set()).add(_width(node, editor))
    known = {symbol: width for symbol, widths in widths_of.items() for width in widths if len(widths) == 1 and width}
    for value in (*model.graph.input, *model.graph.output):
        dims = value.type.tensor_type.shape.dim
        if len(dims) == _RANK and dims[-1].dim_param in known:
            dims[-1].dim_value = known[dims[-1].dim_param]


def _open_widths(node: NodeProto, editor: GraphEditor) -> list[str]:
    """The names of the last dimensions of a node's caches that are open."""
    kinds = [editor.type(name) for index in _CACHES if (name := optional_input(node, index))]
    dims = [kind.tensor_type.shape.dim for kind in kinds if kind is not None]
    return [shape[-1].dim_param for shape in dims if len(shape) == _RANK and shape[-1].dim_param]


def _width(node: NodeProto, editor: GraphEditor) -> int:
    """Elements of a head of an attention; 0 if they are not known."""
    given = attributes(node)
    heads, groups = int(given["num_heads"]), int(given["kv_num_heads"])
    count = heads if optional_input(node, _KEY) else heads + 2 * groups
    columns = _columns(str(node.input[0]), editor)
    return columns // count if columns % count == 0 else 0


def _columns(name: str, editor: GraphEditor) -> int:
    """Columns of what a product computes, perhaps with a bias; 0 if they are not known."""
    node = editor.producer(name)
    while node is not None and node.op_type in _KEEPING:
        products = [other for read in node.input if (other := editor.producer(read)) is not None]
        node = products[0] if len(products) == 1 else None
    if node is None:
        return 0
    if node.op_type == "MatMulNBits":
        return int(attributes(node).get("N", 0))
    shape = editor.shape(node.input[1]) if node.op_type == "MatMul" else None
    return shape[-1] if shape else 0
