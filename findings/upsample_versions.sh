#!/usr/bin/env bash
# ONNX's version converter places the pixels of a linear Upsample and Resize otherwise than ONNX Runtime did.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: Upsample and Resize up to opset 10 have no attribute that says where pixels lie, and their text leaves it
# open; ONNX Runtime divides each position by the scale (asymmetric). Converted to opset 11 and later, the node has the
# new default, by which centres of pixels are mapped (half_pixel): a model of opset 9 that is raised by ONNX's tool
# computes another image in the same runtime. In mode nearest the converted model agrees.
# Output seen: "[0, 1] twice as large: opset 9 [0, 0.5, 1, 1], converted to 13 [0, 0.25, 0.75, 1], mode None; nearest
# [0, 0, 1, 1] and [0, 0, 1, 1]".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, version_converter

x = np.array([0, 1], np.float32).reshape(1, 1, 1, 2)


def run(model):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [float(number) for number in session.run(None, {"x": x})[0].ravel()]


def both(mode):
    """The results of opset 9 and of the converted model, and how that says that it places pixels."""
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 1, 4])
    scales = helper.make_tensor("scales", TensorProto.FLOAT, [4], [1, 1, 1, 2])
    upsample = helper.make_node("Upsample", ["x", "scales"], ["y"], mode=mode)
    graph = helper.make_graph([upsample], "g", [given], [result], [scales])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=4)
    converted = version_converter.convert_version(model, 13)
    (node,) = [node for node in converted.graph.node if node.op_type == "Resize"]
    placed = [item.s.decode() for item in node.attribute if item.name == "coordinate_transformation_mode"]
    return run(model), run(converted), placed[0] if placed else None


def shown(numbers):
    return "[" + ", ".join(f"{number:g}" for number in numbers) + "]"


before, after, placed = both("linear")
near, kept, _ = both("nearest")
print(
    f"[0, 1] twice as large: opset 9 {shown(before)}, converted to 13 {shown(after)}, mode {placed}; "
    f"nearest {shown(near)} and {shown(kept)}"
)
assert before == [0, 0.5, 1, 1] and after == [0, 0.25, 0.75, 1]
assert near == kept == [0, 0, 1, 1]
PYTHON
