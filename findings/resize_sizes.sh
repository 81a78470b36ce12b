#!/usr/bin/env bash
# The size that Resize gives by a decimal factor, by ONNX's shape inference and by ONNX Runtime.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: 20 rows resized by the f32 factor 0.7 are 13 by onnx.shape_inference, which multiplies in a wider type and
# drops the fraction of 13.9999998, and 14 by ONNX Runtime, which multiplies in f32. A model that declares what it was
# exported with (14, as PyTorch computes) is refused by strict inference, and runs.
# Output seen: "inference 13, ONNX Runtime 14, strict inference: refused".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, checker, helper, numpy_helper, shape_inference

FLOAT = TensorProto.FLOAT


def model(rows):
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear")
    image = helper.make_tensor_value_info("x", FLOAT, [1, 1, 20, 30])
    result = helper.make_tensor_value_info("y", FLOAT, rows and [1, 1, rows, 21])
    scales = numpy_helper.from_array(np.array([1, 1, 0.7, 0.7], np.float32), "scales")
    graph = helper.make_graph([node], "resize", [image], [result], [scales])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


inferred = shape_inference.infer_shapes(model(None)).graph.output[0].type.tensor_type.shape.dim[2].dim_value
exported = model(14)
session = onnxruntime.InferenceSession(exported.SerializeToString(), providers=["CPUExecutionProvider"])
(result,) = session.run(None, {"x": np.zeros((1, 1, 20, 30), np.float32)})
try:
    shape_inference.infer_shapes(exported, check_type=True, strict_mode=True)
    strict = "accepted"
except (shape_inference.InferenceError, checker.ValidationError):
    strict = "refused"
print(f"inference {inferred}, ONNX Runtime {result.shape[2]}, strict inference: {strict}")
assert (inferred, result.shape[2], strict) == (13, 14, "refused")
PYTHON
