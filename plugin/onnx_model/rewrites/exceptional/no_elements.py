"""Takes away operators that have nothing to do, as IREE's code of some divides by their number of elements, which is 0.

Such a dimension may be of an input, or be left by a slice.
"""

from __future__ import annotations

from onnx import NodeProto, TensorProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, node_rewrite

# Those of no elements that have a result sum over nothing.
_SUMS = ("Einsum", "Gemm", "MatMul", "MatMulInteger", "ReduceMean")
# Other operands of these are settings, which may be empty.
_OF_FIRST = ("ReduceMean", "Resize")


def _reads_no_elements(node: NodeProto, editor: GraphEditor) -> bool:
    """Whether data that ``node`` reads has a dimension of 0."""
    data = node.input[:1] if node.op_type in _OF_FIRST and not node.domain else node.input
    return any(0 in (editor.shape(name) or ()) for name in data if name)


@node_rewrite()
def without_elements(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Make constants of results without elements, and of sums of nothing; scatter nothing by no operator.

    The mean of nothing is 0 in ONNX Runtime, and not a number in IREE.
    """
    emit, result = Emitter(editor, node), editor.shape(node.output[0])
    if len(node.output) > 1 or result is None or not _reads_no_elements(node, editor):
        return None
    if editor.element_type(node.output[0]) in (TensorProto.UNDEFINED, TensorProto.STRING):
        return None
    if _scatters_nothing(node, editor):
        emit("Identity", node.input[0], output=node.output[0])
    elif 0 in result or node.op_type in _SUMS:
        _put_zeros(emit, list(result))
    else:
        return None
    return emit.nodes


def _scatters_nothing(node: NodeProto, editor: GraphEditor) -> bool:
    if node.op_type == "ScatterElements":
        return 0 in (editor.shape(node.input[1]) or ())
    # An index without numbers is that of the whole tensor.
    return node.op_type == "ScatterND" and 0 in (editor.shape(node.input[1]) or ())[:-1]


def _put_zeros(emit: Emitter, shape: list[int]) -> None:
    """Emit zeros as the node's result, and the bias of a ``Gemm`` in addition."""
    node = emit.node
    zero, sizes = emit.like(0, node.output[0], "zero"), emit.constant(shape, "shape")
    if node.op_type == "Gemm" and len(node.input) > 2 and node.input[2]:
        scale = next((attribute.f for attribute in node.attribute if attribute.name == "beta"), 1.0)
        bias = emit("Mul", node.input[2], emit.like(scale, node.input[2], "beta"), part="bias")
        emit("Expand", bias, sizes, output=node.output[0])
    else:
        emit("Expand", zero, sizes, output=node.output[0])
