#!/usr/bin/env bash
# Which targets ONNX's own reference counts in the mean of NegativeLogLikelihoodLoss.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: targets that equal ignore_index have no loss. ONNX's text leaves open what the mean divides by; the function
# body by which ONNX defines the operator divides by the number of those that count, whatever ignore_index is. So do
# onnx.reference and ONNX Runtime for -100; for -1 onnx.reference divides by all of them. So one model with another number
# for what is ignored has another loss.
# Output seen: "two of four targets ignored, losses of 1: by -100 the mean is 1, by -1 it is 0.5; ONNX Runtime 1 and 1".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator


def means(ignored):
    """The mean loss by ONNX's reference and by ONNX Runtime, half of the targets being ignored."""
    feeds = {"x": np.full((4, 2), -1, np.float32), "targets": np.array([0, ignored, 1, ignored])}
    node = helper.make_node("NegativeLogLikelihoodLoss", ["x", "targets"], ["y"], ignore_index=ignored)
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 2]),
            helper.make_tensor_value_info("targets", TensorProto.INT64, [4]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [float(run(None, feeds)[0]) for run in (ReferenceEvaluator(model).run, session.run)]


far, near = means(-100), means(-1)
print(
    f"two of four targets ignored, losses of 1: by -100 the mean is {far[0]:g}, by -1 it is {near[0]:g}; "
    f"ONNX Runtime {far[1]:g} and {near[1]:g}"
)
assert far == [1, 1]
assert near == [0.5, 1]
PYTHON
