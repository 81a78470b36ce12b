#!/usr/bin/env bash
# OpenVINO gives the onesided DFT of real numbers one dimension more than ONNX.
#
# Versions: openvino 2026.4.1, onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: DFT (version 17) of real numbers has a last dimension of 1, which becomes the 2 of complex results. With
# onesided=1 and an axis that is not the one before the last, OpenVINO keeps that dimension and adds the one of complex
# numbers behind it, with no error; what reads the result by its axes then reads others. Twosided transforms have ONNX's
# shape.
# Output seen: "shape of a DFT of 2 x 3 x 4 x 1 along axis 2: onesided ONNX Runtime (2, 3, 3, 2), OpenVINO (2, 3, 3, 1,
# 2); twosided both (2, 3, 4, 2)".
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

x = np.random.default_rng(0).standard_normal((2, 3, 4, 1)).astype(np.float32)


def by_openvino(model, x):
    core = openvino.Core()
    options = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", options)
    return compiled([x])[compiled.outputs[0]]


def by_onnx_runtime(model, x):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def shapes(onesided):
    """The shapes of the results by ONNX Runtime and by OpenVINO."""
    node = helper.make_node("DFT", ["x"], ["y"], axis=2, onesided=onesided)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [given], [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return by_onnx_runtime(model, x).shape, by_openvino(model, x).shape


(right, other), both = shapes(1), shapes(0)
print(
    f"shape of a DFT of 2 x 3 x 4 x 1 along axis 2: onesided ONNX Runtime {right}, OpenVINO {other}; "
    f"twosided both {both[0]}"
)
assert right == (2, 3, 3, 2) and other == (2, 3, 3, 1, 2)
assert both == ((2, 3, 4, 2), (2, 3, 4, 2))
PYTHON
