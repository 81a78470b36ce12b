#!/usr/bin/env bash
# What ONNX Runtime's static quantiser writes for weights per channel where the model is of an older operator set.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: quantize_static(per_channel=True, quant_format=QDQ) gives DequantizeLinear an attribute `axis` whatever the
# model's operator set is. The attribute exists from opset 13 on. A model of opset 11 or 12 is quantised without a
# warning that names the axis, keeps its operator set, and ONNX's checker and ONNX Runtime itself refuse the file. With
# one scale per tensor, or from opset 13 on, they take it.
# Output seen: "opset 11: refused, opset 12: refused, opset 13: runs; per tensor, opset 12: runs".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 sympy==1.14.0

cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import logging

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidGraph
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

logging.disable(logging.WARNING)
IMAGE = (1, 3, 8, 8)


class Images(CalibrationDataReader):
    def __init__(self):
        random = np.random.default_rng(0)
        self.left = [{"x": random.standard_normal(IMAGE).astype(np.float32)} for _ in range(2)]

    def get_next(self):
        return self.left.pop() if self.left else None


def quantised(opset, per_channel):
    """Whether ONNX Runtime runs what it quantised, and whether ONNX's checker takes it."""
    weight = np.random.default_rng(1).standard_normal((4, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], name="conv", pads=[1, 1, 1, 1])],
        "convolution",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, IMAGE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4, 8, 8))],
        [numpy_helper.from_array(weight, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), "float.onnx")
    quantize_static(
        *("float.onnx", "quantised.onnx", Images()),
        quant_format=QuantFormat.QDQ,
        per_channel=per_channel,
        weight_type=QuantType.QInt8,
    )
    written = onnx.load("quantised.onnx")
    assert written.opset_import[0].version == opset
    try:
        onnx.checker.check_model(written, full_check=True)
        is_valid = True
    except onnx.checker.ValidationError as error:
        assert "axis" in str(error)
        is_valid = False
    try:
        onnxruntime.InferenceSession("quantised.onnx", providers=["CPUExecutionProvider"])
    except InvalidGraph:
        return "refused", is_valid
    return "runs", is_valid


seen = {opset: quantised(opset, per_channel=True) for opset in (11, 12, 13)}
tensor = quantised(12, per_channel=False)
told = ", ".join(f"opset {opset}: {result}" for opset, (result, _) in seen.items())
print(f"{told}; per tensor, opset 12: {tensor[0]}")
assert seen == {11: ("refused", False), 12: ("refused", False), 13: ("runs", True)}
assert tensor == ("runs", True)
PYTHON
