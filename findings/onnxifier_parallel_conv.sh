#!/usr/bin/env bash
# ONNXifier merges convolutions of different dilations into one.
#
# Versions: onnxifier 2.0.3, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: the pass merge_parallel_conv joins the filters of two convolutions of one image whose results are
# concatenated, and keeps the first one's node. It does not compare their attributes: parallel convolutions that differ
# in dilation and pads, as networks for segmentation have, all get those of the first, and give images of the same size.
# Nothing is said. Of equal attributes the result is right.
# Output seen: "largest difference: dilations 1 and 1 0e+00, 1 and 2 12; convolutions left 1".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnxifier==2.0.3 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxifier import OnnxGraph, PassManager

onnxruntime.set_default_logger_severity(3)
random = np.random.default_rng(0)
x = random.standard_normal((1, 3, 6, 6)).astype(np.float32)
filters = [numpy_helper.from_array(random.standard_normal((2, 3, 3, 3)).astype(np.float32), name) for name in "vw"]


def run(model):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def merged(dilation):
    """How far the merged model is from the model, and how many convolutions it has."""
    nodes = []
    for name, width in (("v", 1), ("w", dilation)):
        sizes = {"kernel_shape": [3, 3], "pads": [width] * 4, "dilations": [width] * 2}
        nodes.append(helper.make_node("Conv", ["x", name], [f"{name}.image"], name=f"{name}.conv", **sizes))
    nodes.append(helper.make_node("Concat", ["v.image", "w.image"], ["both"], axis=1, name="join"))
    nodes.append(helper.make_node("Relu", ["both"], ["y"], name="relu"))
    shapes = {"x": [1, 3, 6, 6], "y": [1, 4, 6, 6]}
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], filters)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model = onnx.shape_inference.infer_shapes(model)
    right = run(model)
    made = PassManager(["merge_parallel_conv"]).optimize(OnnxGraph(model), strict=False).model
    return float(np.abs(run(made) - right).max()), [node.op_type for node in made.graph.node].count("Conv")


(close, _), (far, left) = merged(1), merged(2)
print(f"largest difference: dilations 1 and 1 {close:.0e}, 1 and 2 {far:.0f}; convolutions left {left}")
assert close < 1e-4
assert far > 1 and left == 1
PYTHON
