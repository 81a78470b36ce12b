"""How far a correct module may be from ONNX Runtime: what rounding of the model's own types allows."""

from __future__ import annotations

import onnx

# docs/accuracy.md derives these bounds.
_HALF_PRECISION = 3e-2
_QUANTISED = 5e-2
_INTEGER_OPS = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})


def tolerance(model: onnx.ModelProto, max_error: float) -> float:
    """The larger of what the user allows and what the model's own element types round off.

    Args:
        model: the original or the prepared one.
        max_error: relative error of the largest output that the user allows.
    """
    graph = model.graph
    if any(node.op_type in _INTEGER_OPS for node in graph.node):
        return max(max_error, _QUANTISED)
    half = {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
    if any(tensor.data_type in half for tensor in graph.initializer):
        return max(max_error, _HALF_PRECISION)
    return max_error
