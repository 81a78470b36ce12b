"""Computes sums of float16 values in float32, as ONNX Runtime does."""

from __future__ import annotations

from onnx import NodeProto, TensorProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, node_rewrite
from sartor.onnx_model.rewrites.structure.fold_constants import SUMMING

_NARROW = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


@node_rewrite()
def widen_reductions(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Cast to float32 around pooling, reductions, softmax and normalisation of float16 and bfloat16 values.

    IREE's importer sums these in the narrow type. The relative error of a sum of n terms is then ``n u`` (u = 2**-11
    for float16): 3% of SqueezeNet's class scores after pooling 169 values. Convolutions and products use float32.
    """
    narrow = editor.element_type(node.input[0]) if node.input else 0
    is_sum = node.op_type in SUMMING or (node.op_type == "Einsum" and _adds_alone(node))
    if not is_sum or narrow not in _NARROW or len(node.output) > 1:
        return None
    emit = Emitter(editor, node)
    operands = [_wide(emit, name) if name and editor.element_type(name) == narrow else name for name in node.input]
    result = emit.copy(operands)
    emit("Cast", result, part="narrow", output=node.output[0], to=narrow)
    return emit.nodes


def _adds_alone(node: NodeProto) -> bool:
    """Whether an Einsum adds along an index of one operand, which is no product of matrices."""
    read, _, written = str(attributes(node).get("equation", "")).replace(" ", "").partition("->")
    operands = [set(part) for part in read.split(",")]
    return any(sum(letter in operand for operand in operands) == 1 for letter in set().union(*operands) - {*written})


def _wide(emit: Emitter, name: str) -> str:
    return emit("Cast", name, part="widen", to=TensorProto.FLOAT)
