#!/usr/bin/env bash
# OpenVINO's NonMaxSuppression drops a box whose overlap equals the threshold; ONNX keeps it.
#
# Versions: openvino 2026.4.1, onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: ONNX drops boxes whose overlap is greater than iou_threshold, and has an example of two boxes that
# overlap by exactly the threshold (1/7 in f32), both of which stay; ONNX Runtime keeps both, OpenVINO drops the
# second. The same model so finds another number of objects.
# Output seen: "boxes kept at an overlap of 0.5 by a threshold of 0.5: OpenVINO 1, ONNX Runtime 2".
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


def by_openvino(model, feeds):
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    results = compiled(feeds)
    return [results[output] for output in compiled.outputs]


def by_onnx_runtime(model, feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


inputs = [("boxes", [1, 2, 4]), ("scores", [1, 1, 2])]
kept = [
    helper.make_tensor("most", TensorProto.INT64, [1], [3]),
    helper.make_tensor("overlap", TensorProto.FLOAT, [1], [0.5]),
    helper.make_tensor("score", TensorProto.FLOAT, [1], [0.0]),
]
node = helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "score"], ["chosen"])
graph = helper.make_graph(
    [node],
    "g",
    [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs],
    [helper.make_tensor_value_info("chosen", TensorProto.INT64, [None, 3])],
    kept,
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)
# The first box covers half of the second: both areas and the overlap are exact in binary.
feeds = {
    "boxes": np.array([[[0, 0, 1, 1], [0, 0, 1, 2]]], np.float32),
    "scores": np.array([[[0.9, 0.8]]], np.float32),
}
one, other = (len(compute(model, feeds)[0]) for compute in (by_openvino, by_onnx_runtime))
print(f"boxes kept at an overlap of 0.5 by a threshold of 0.5: OpenVINO {one}, ONNX Runtime {other}")
assert (one, other) == (1, 2)
PYTHON
