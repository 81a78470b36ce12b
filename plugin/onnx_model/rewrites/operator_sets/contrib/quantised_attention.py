"""Rewrites ONNX Runtime's quantised layers of BERT to dequantisation and the float layers from which it made them."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import NodeProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, optional_input
from sartor.onnx_model.rewrites.number_types.quantized import Lowering, dequantize

_TABLES = 5


def _attention(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    """``QAttention(x, weights, bias, x_scale, w_scale, mask, x_zero, w_zero, past)``."""
    emit = Emitter(editor, node)
    value = dequantize(emit, (node.input[0], node.input[3], optional_input(node, 6)), "input")
    weights = dequantize(emit, (node.input[1], node.input[4], optional_input(node, 7)), "weight", axis=1)
    operands = [value, weights, node.input[2], optional_input(node, 5), optional_input(node, 8)]
    while not operands[-1]:
        operands.pop()
    emit.many("Attention", *operands, outputs=tuple(node.output), domain=node.domain, **attributes(node))
    return emit.nodes


def _embedding(node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
    """Its five tables follow the two indices, then the mask, five scales and five zero points."""
    emit = Emitter(editor, node)
    tables = []
    for index in range(2, 2 + _TABLES):
        scale, zero = optional_input(node, index + 1 + _TABLES), optional_input(node, index + 1 + 2 * _TABLES)
        present = bool(optional_input(node, index))
        tables.append(dequantize(emit, (node.input[index], scale, zero), f"table{index}") if present else "")
    operands = [*node.input[:2], *tables, optional_input(node, 2 + _TABLES)]
    settings = attributes(node)
    emit.many(
        "EmbedLayerNormalization",
        *operands,
        outputs=tuple(node.output),
        domain=node.domain,
        epsilon=settings.get("epsilon", 1e-12),
    )
    return emit.nodes


QUANTISED_ATTENTION: Mapping[str, Lowering] = {
    "QAttention": _attention,
    "QEmbedLayerNormalization": _embedding,
}
