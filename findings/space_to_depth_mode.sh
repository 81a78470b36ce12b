#!/usr/bin/env bash
# OpenVINO reads the new mode of SpaceToDepth as the old one.
#
# Versions: openvino 2026.4.1, onnx 1.23.2, on x86-64.
# Behaviour: ONNX 1.23 gives SpaceToDepth a mode (DCR, as before, or CRD, as PyTorch's pixel_unshuffle). OpenVINO
# imports a node with CRD without an error and orders the channels as by DCR, so that every value is there and stands
# in another channel. ONNX's reference follows the mode.
# Output seen: "channels of 2 x 2 x 2 numbers by CRD: OpenVINO [0, 4, 1, 5, 2, 6, 3, 7], ONNX's reference [0, 1, 2, 3,
# 4, 5, 6, 7]".
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

node = helper.make_node("SpaceToDepth", ["x"], ["y"], blocksize=2, mode="CRD")
shapes = (("x", [1, 2, 2, 2]), ("y", [1, 8, 1, 1]))
x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes)
graph = helper.make_graph([node], "g", [x], [y])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", defs.onnx_opset_version())])
feeds = {"x": np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)}

core = openvino.Core()
compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU")
found = compiled(feeds)[compiled.output(0)].ravel().astype(int).tolist()
expected = ReferenceEvaluator(model).run(None, feeds)[0].ravel().astype(int).tolist()
print(f"channels of 2 x 2 x 2 numbers by CRD: OpenVINO {found}, ONNX's reference {expected}")
assert found == [0, 4, 1, 5, 2, 6, 3, 7] and expected == list(range(8))
PYTHON
