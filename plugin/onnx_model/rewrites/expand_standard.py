"""Standard operators that IREE has no lowering for, but that ONNX defines by a function of simpler ones."""

from __future__ import annotations

import onnx.inliner
from onnx import ModelProto

from sartor.onnx_model.walk import nodes

# Found by running ONNX's own operator tests through IREE 3.13. What it lowers itself must stay whole: LayerNormalization is
# one layer, its function body ten.
EXPANDED = (
    *("AffineGrid", "Attention", "CausalConvWithState", "LinearAttention", "NegativeLogLikelihoodLoss"),
    *("RMSNormalization", "RotaryEmbedding", "SoftmaxCrossEntropyLoss", "SwiGLU", "Swish"),
)


def expand_standard(model: ModelProto) -> tuple[str, ...]:
    """Replace the operators in ``EXPANDED`` by the function bodies in the ONNX standard; needs inferred shapes."""
    called = tuple(node.name for node in nodes(model.graph) if node.op_type in EXPANDED and not node.domain)
    if called:
        wanted = [("", name) for name in EXPANDED]
        model.CopyFrom(onnx.inliner.inline_selected_functions(model, wanted, inline_schema_functions=True))
    return called
