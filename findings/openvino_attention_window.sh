#!/usr/bin/env bash
# OpenVINO computes Attention with a local window as if it had none.
#
# Versions: openvino 2026.4.1, onnx 1.23.2, numpy, on x86-64.
# Behaviour: ONNX's Attention has left_window_size and right_window_size since operator set 27; OpenVINO reads the
# node, leaves both attributes out without an error, and attends to all keys. With equal scores the result is the mean
# of all values instead of that of the window. ONNX's reference follows the window.
# Output seen: "Attention of equal scores over values 0 to 4 with a window of 1 before: OpenVINO [2.0, 2.0, 2.0, 2.0,
# 2.0], ONNX's reference [0.0, 0.5, 1.5, 2.5, 3.5]".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet openvino==2026.4.1 onnx==1.23.2 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import openvino
from onnx import TensorProto, defs, helper
from onnx.reference import ReferenceEvaluator

names = ("query", "key", "value")
node = helper.make_node("Attention", list(names), ["y"], left_window_size=1, right_window_size=0)
values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 1, 5, 1]) for name in names]
graph = helper.make_graph([node], "g", values, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 5, 1])])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", defs.onnx_opset_version())])
zeros, numbers = np.zeros((1, 1, 5, 1), np.float32), np.arange(5, dtype=np.float32).reshape(1, 1, 5, 1)
feeds = {"query": zeros, "key": zeros, "value": numbers}

core = openvino.Core()
compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
found = compiled(feeds)[compiled.output(0)].ravel().tolist()
expected = ReferenceEvaluator(model).run(None, feeds)[0].ravel().tolist()
print(
    f"Attention of equal scores over values 0 to 4 with a window of 1 before: OpenVINO {found}, ONNX's reference {expected}"
)
assert np.allclose(found, 2) and np.allclose(expected, [0, 0.5, 1.5, 2.5, 3.5])
PYTHON
