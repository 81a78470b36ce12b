"""Which pairs of QuantizeLinear and DequantizeLinear ONNX Runtime fuses with a product.

Those around other operators keep their type: unsigned ones it would fuse with these too, and its fused sums and
averages round other ties than their definition.
"""

from __future__ import annotations

from onnx import NodeProto

from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.onnx_model.graphs.walk import subgraphs
from sartor.onnx_model.operator_types.alike import BY_WEIGHTS
from sartor.onnx_model.operator_types.moving import MOVING

# It moves pairs across operators that only move elements, and drops those that a range makes superfluous.
_PASSING = MOVING | {"Clip", "Dropout", "MaxPool", "Pad", "Relu"}
_ROUNDING = "QuantizeLinear"


def is_multiplied(node: NodeProto, editor: GraphEditor) -> bool:
    """Whether a DequantizeLinear may be fused with a product: it gives a weight, or a product reads it."""
    source = _source(node, editor)
    if source is None or source.op_type != _ROUNDING:
        return True
    pending, seen = list(node.output), set[str]()
    while pending:
        name = pending.pop()
        readers = [] if name in seen else editor.consumers(name)
        seen.add(name)
        if any(reader.op_type in BY_WEIGHTS or any(subgraphs(reader)) for reader in readers):
            return True
        pending.extend(output for reader in readers if reader.op_type in _PASSING for output in reader.output)
    return False


def is_product(node: NodeProto, editor: GraphEditor) -> bool:
    """Whether a QuantizeLinear may be fused with a product that it rounds."""
    source = _source(node, editor)
    return source is not None and source.op_type in BY_WEIGHTS


def _source(node: NodeProto, editor: GraphEditor) -> NodeProto | None:
    """The node that computes what a node reads, apart from those that only move it."""
    source = editor.producer(node.input[0])
    while source is not None and source.op_type in _PASSING:
        source = editor.producer(source.input[0])
    return source
