#!/usr/bin/env bash
# tract pads with zeros whatever the mode of an ONNX Pad, if a value is given.
#
# Versions: tract 0.23.9, onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: the third input of Pad (version 13) is the value of the mode constant, and has no meaning in the modes
# reflect and edge, where it may stand all the same, as some exporters write it. tract takes the mode for constant as
# soon as there is a third input, and pads with that value; without it the modes are right. ONNX Runtime and ONNX's
# reference look at the mode.
# Output seen: "[1, 2, 3] padded by 2: edge [1, 1, 1, 2, 3, 3, 3], tract with a value [0, 0, 1, 2, 3, 0, 0], without [1,
# 1, 1, 2, 3, 3, 3]".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tract==0.23.9 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnxruntime
import tract
from onnx import TensorProto, helper

x = np.array([1, 2, 3], np.float32)


def padded(has_value):
    """The padded numbers by ONNX Runtime and by tract."""
    inputs = ["x", "pads", "value"] if has_value else ["x", "pads"]
    constants = [helper.make_tensor("pads", TensorProto.INT64, [2], [2, 2])]
    if has_value:
        constants.append(helper.make_tensor("value", TensorProto.FLOAT, [], [0]))
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [size]) for name, size in (("x", 3), ("y", 7))]
    node = helper.make_node("Pad", inputs, ["y"], mode="edge")
    graph = helper.make_graph([node], "g", declared[:1], declared[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, "model.onnx")
    session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    (other,) = tract.onnx().load("model.onnx").into_model().into_runnable().run([x])
    return [array.astype(int).tolist() for array in (session.run(None, {"x": x})[0], other.to_numpy())]


right, wrong = padded(True)
same, plain = padded(False)
print(f"[1, 2, 3] padded by 2: edge {right}, tract with a value {wrong}, without {plain}")
assert right == same == plain == [1, 1, 1, 2, 3, 3, 3]
assert wrong == [0, 0, 1, 2, 3, 0, 0]
PYTHON
