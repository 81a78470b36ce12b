#!/usr/bin/env bash
# onnxoptimizer's default passes drop a Reshape although the next one copies its sizes.
#
# Versions: onnxoptimizer 0.4.2, onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: A 0 in the shape of a Reshape means the size of its input. Where two follow each other,
# eliminate_consecutive_idempotent_ops, one of the default passes, drops the first, so that the 0 stands for a size of
# another tensor. The result has another shape; ONNX's own expansion of GroupNormalization becomes wrong so.
# Output seen: "shape before [2, 12], after [4, 6]".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnxoptimizer==0.4.2 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxoptimizer
import onnxruntime
from onnx import TensorProto, helper

kept = [
    helper.make_tensor("first", TensorProto.INT64, [3], [2, 2, 6]),
    helper.make_tensor("second", TensorProto.INT64, [2], [0, -1]),
]
nodes = [helper.make_node("Reshape", ["x", "first"], ["middle"]), helper.make_node("Reshape", ["middle", "second"], ["y"])]
x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", [4, 6]), ("y", None)))
graph = helper.make_graph(nodes, "g", [x], [y], kept)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def shape(proto):
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {"x": np.arange(24, dtype=np.float32).reshape(4, 6)})[0].shape)


before, after = shape(model), shape(onnxoptimizer.optimize(model))
print(f"shape before {before}, after {after}")
assert (before, after) == ([2, 12], [4, 6])
PYTHON
