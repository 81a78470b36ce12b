#!/usr/bin/env bash
# The axis of a Softmax of opset 12 and before that quantize_static writes as QLinearSoftmax.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: without an axis, Softmax of opset 1 to 12 has the axis 1 and normalises all dimensions from there on
# together. The quantiser copies the node's attributes, of which there is none, and the opset; the QLinearSoftmax that
# it writes in the format QOperator has the last axis by default, in whatever opset. Rows that should sum up to 1
# together do so one by one. With the axis 1 written out, or in the format QDQ, the result is right to a step of 8 bits.
# Output seen: "sums of 3 rows together: float 1.0, QDQ 1.0, QOperator 3.0, with the axis written out 1.0".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 sympy==1.14.0

cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

random = np.random.default_rng(0)
samples = [{"x": random.standard_normal((1, 3, 8)).astype(np.float32)} for _ in range(16)]
weight = numpy_helper.from_array(random.standard_normal((8, 4)).astype(np.float32), "weight")


class Samples(CalibrationDataReader):
    def __init__(self):
        self.left = list(samples)

    def get_next(self):
        return self.left.pop() if self.left else None


def total(name):
    session = onnxruntime.InferenceSession(name, providers=["CPUExecutionProvider"])
    return float(session.run(None, samples[0])[0].sum())


def totals(quant_format, **axis):
    nodes = [
        helper.make_node("MatMul", ["x", "weight"], ["product"], "product"),
        helper.make_node("Softmax", ["product"], ["y"], "softmax", **axis),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3, size]) for name, size in (("x", 8), ("y", 4)))
    graph = helper.make_graph(nodes, "g", [x], [y], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=7), "float.onnx")
    quantize_static("float.onnx", "quantised.onnx", Samples(), quant_format=quant_format)
    return total("float.onnx"), total("quantised.onnx")


right, qdq = totals(QuantFormat.QDQ)
_, operators = totals(QuantFormat.QOperator)
_, written = totals(QuantFormat.QOperator, axis=1)
print(
    f"sums of 3 rows together: float {right:.1f}, QDQ {qdq:.1f}, QOperator {operators:.1f}, "
    f"with the axis written out {written:.1f}"
)
np.testing.assert_allclose([right, qdq, written], 1, atol=0.05)
np.testing.assert_allclose(operators, 3, atol=0.1)
PYTHON
