#!/usr/bin/env bash
# ONNX's version converter lowers Softmax of opset 13 to one that divides by larger sums.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: from opset 13 on Softmax and LogSoftmax take one dimension; before they take all from their axis on
# together. convert_version to 12 and 11 keeps node and axis as they are, also where that is not the last dimension, so
# that numbers are shares of a whole image. Upwards it flattens around the node, which keeps its meaning. Hardmax it
# refuses to lower. ONNX Runtime follows both texts.
# Output seen: "equal numbers in 2 rows of 2: axis 1 0.5, lowered to 12 0.25, nodes ['Softmax']; logarithms -0.693 and
# -1.386; last axis 0.5 and 0.5; raised from 12 to 13 0.25 and 0.25".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, version_converter

x = np.zeros((1, 2, 2), np.float32)


def run(model):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return round(float(session.run(None, {"x": x})[0].max()), 3)


def converted(operator, axis, version, target):
    """The result before and after, and the nodes after the conversion."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"], axis=axis)], "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=7)
    made = version_converter.convert_version(model, target)
    return run(model), run(made), [node.op_type for node in made.graph.node]


right, wrong, names = converted("Softmax", 1, 13, 12)
first, second, _ = converted("LogSoftmax", 1, 13, 11)
last, same, _ = converted("Softmax", 2, 13, 12)
before, after, _ = converted("Softmax", 1, 12, 13)
print(
    f"equal numbers in 2 rows of 2: axis 1 {right}, lowered to 12 {wrong}, nodes {names}; logarithms {first} and "
    f"{second}; last axis {last} and {same}; raised from 12 to 13 {before} and {after}"
)
assert (right, wrong, names) == (0.5, 0.25, ["Softmax"])
assert first == -0.693 and second == -1.386
assert last == same == 0.5 and before == after == 0.25
PYTHON
