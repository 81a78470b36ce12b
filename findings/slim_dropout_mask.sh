#!/usr/bin/env bash
# onnxslim takes the mask of a Dropout for its values.
#
# Versions: onnxslim 0.1.98, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: the second output of Dropout (version 13) is a mask, all true in inference. onnxslim drops each Dropout and
# connects what read its outputs, the mask too, to its input: what counted or used kept elements reads the numbers
# themselves. A Cast behind the mask hides that the types differ, so that the model runs.
# Output seen: "mask of [5, -7, 0] as numbers: [1, 1, 1], slimmed [5, -7, 0]".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnxslim==0.1.98 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
import onnxslim
from onnx import TensorProto, checker, helper

x = np.array([5, -7, 0], np.float32)
nodes = [
    helper.make_node("Dropout", ["x"], ["values", "mask"]),
    helper.make_node("Cast", ["mask"], ["kept"], to=TensorProto.FLOAT),
]
values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("x", "kept")]
graph = helper.make_graph(nodes, "g", values[:1], values[1:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
checker.check_model(model)


def mask(made):
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0].astype(int).tolist()


right, wrong = mask(model), mask(onnxslim.slim(model))
print(f"mask of [5, -7, 0] as numbers: {right}, slimmed {wrong}")
assert right == [1, 1, 1]
assert wrong == [5, -7, 0]
PYTHON
