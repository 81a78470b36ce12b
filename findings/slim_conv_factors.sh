#!/usr/bin/env bash
# onnxslim folds factors of a convolution's columns as if they were channels'.
#
# Versions: onnxslim 0.1.98, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: by ONNX's rules of broadcasting, a vector that is multiplied by an image of four dimensions belongs to the
# last one, the columns. Where an image has as many columns as channels, onnxslim multiplies the filters of the Conv
# before by the vector's numbers, channel by channel, and drops the Mul. A sum with such a vector it leaves as it is.
# Output seen: "ones of 4 channels and columns by [1, 2, 3, 4]: first row of the first channel [1, 2, 3, 4], slimmed [1,
# 1, 1, 1], nodes ['Conv']".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnxslim==0.1.98 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
import onnxslim
from onnx import TensorProto, helper, numpy_helper

CHANNELS = 4
constants = {
    "filters": np.eye(CHANNELS, dtype=np.float32).reshape(CHANNELS, CHANNELS, 1, 1),
    "factors": np.arange(1, CHANNELS + 1, dtype=np.float32),
}
nodes = [helper.make_node("Conv", ["x", "filters"], ["image"]), helper.make_node("Mul", ["image", "factors"], ["y"])]
values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, CHANNELS, 4, 4]) for name in ("x", "y")]
kept = [numpy_helper.from_array(array, name) for name, array in constants.items()]
graph = helper.make_graph(nodes, "g", values[:1], values[1:], kept)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def first_row(made):
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": np.ones((1, CHANNELS, 4, 4), np.float32)})[0][0, 0, 0].astype(int).tolist()


right = first_row(model)
slimmed = onnxslim.slim(model)
names, wrong = [node.op_type for node in slimmed.graph.node], first_row(slimmed)
print(
    f"ones of 4 channels and columns by [1, 2, 3, 4]: first row of the first channel {right}, slimmed {wrong}, "
    f"nodes {names}"
)
assert right == [1, 2, 3, 4]
assert wrong == [1, 1, 1, 1] and names == ["Conv"]
PYTHON
