#!/usr/bin/env bash
# OpenVINO computes Softmax of opsets 11 and 12 by the definition of opset 13.
#
# Versions: openvino 2026.4.1, onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: in opsets 1 to 12 Softmax takes all dimensions from its axis on together. OpenVINO follows that in opsets
# up to 10, and for LogSoftmax and Hardmax in all; Softmax of opsets 11 and 12, whose text is the same, it computes
# along the single axis. Exports of those years are of these opsets.
# Output seen: "largest difference from ONNX Runtime, axis 1 of 1 x 2 x 3 x 4: opset 9 7e-09, opset 11 0.9, opset 12
# 0.9, opset 13 6e-08; LogSoftmax of opset 11 0e+00".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet openvino==2026.4.1 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
import openvino
from onnx import TensorProto, helper

x = np.random.default_rng(0).standard_normal((1, 2, 3, 4)).astype(np.float32)


def by_openvino(model, x):
    core = openvino.Core()
    options = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", options)
    return compiled([x])[compiled.outputs[0]]


def by_onnx_runtime(model, x):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def difference(opset, operator="Softmax"):
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"], axis=1)], "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=4)
    return float(np.abs(by_openvino(model, x) - by_onnx_runtime(model, x)).max())


apart = {opset: difference(opset) for opset in (9, 11, 12, 13)}
logarithm = difference(11, "LogSoftmax")
print(
    "largest difference from ONNX Runtime, axis 1 of 1 x 2 x 3 x 4: "
    + ", ".join(f"opset {opset} {size:.1g}" for opset, size in apart.items())
    + f"; LogSoftmax of opset 11 {logarithm:.0e}"
)
assert max(apart[9], apart[13], logarithm) < 1e-5
assert min(apart[11], apart[12]) > 0.1
PYTHON
