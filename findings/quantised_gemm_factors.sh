#!/usr/bin/env bash
# What quantize_static makes of the factors alpha and beta of a Gemm.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: Gemm adds beta * C to alpha * A * B. In the format QDQ, the default, the quantiser sets beta to 1 and keeps
# C, so that the bias is no longer multiplied. In the format QOperator it divides C by beta instead, and QGemm then
# multiplies C by alpha. Nothing is said. With both factors 1, the result is right to the step of its 8 bits.
# Output seen: "bias in the result, by the factors 2 and 1, 1 and 2: QDQ 1.0 and 0.5, QOperator 2.0 and 0.25 of the
# right one".
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

ZEROS = {"x": np.zeros((1, 8), np.float32)}
random = np.random.default_rng(0)
weight = random.standard_normal((8, 4)).astype(np.float32)
bias = np.full(4, 3, np.float32)


class Samples(CalibrationDataReader):
    def __init__(self):
        self.left = [{"x": random.standard_normal((1, 8)).astype(np.float32) * 4} for _ in range(32)]

    def get_next(self):
        return self.left.pop() if self.left else None


def run(name):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(name, options, providers=["CPUExecutionProvider"])
    return session.run(None, ZEROS)[0].mean()


def kept(quant_format, alpha, beta):
    """How much of beta * C is left where the product is zero."""
    node = helper.make_node("Gemm", ["x", "weight", "bias"], ["y"], "gemm", alpha=alpha, beta=beta)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size]) for name, size in (("x", 8), ("y", 4))]
    constants = [numpy_helper.from_array(weight, "weight"), numpy_helper.from_array(bias, "bias")]
    graph = helper.make_graph([node], "g", values[:1], values[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), "float.onnx")
    quantize_static("float.onnx", "quantised.onnx", Samples(), quant_format=quant_format)
    return run("quantised.onnx") / run("float.onnx")


FACTORS = ((1.0, 1.0), (2.0, 1.0), (1.0, 2.0))
qdq, operators = ([kept(kind, *factors) for factors in FACTORS] for kind in (QuantFormat.QDQ, QuantFormat.QOperator))
print(
    f"bias in the result, by the factors 2 and 1, 1 and 2: QDQ {qdq[1]:.2f} and {qdq[2]:.2f}, "
    f"QOperator {operators[1]:.2f} and {operators[2]:.2f} of the right one"
)
np.testing.assert_allclose(qdq, [1, 1, 0.5], atol=0.04)
np.testing.assert_allclose(operators, [1, 2, 0.25], atol=0.04)
PYTHON
