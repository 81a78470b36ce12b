#!/usr/bin/env bash
# ONNX's own reference normalises as many channels of LRN as there are images.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: onnx.reference counts the channels of LRN (version 13) by the first dimension, the batch: of one image only
# the first channel is divided by its neighbours, and the others stay as they are if alpha is 1 and bias 1. More images
# than channels raise an error. ONNX's own tests of the operator have five images of five channels, with which it is
# right, as ONNX Runtime is with any.
# Output seen: "channels of ones that are changed, of 4: one image 1, four images 4 by the reference; 4 and 4 by ONNX
# Runtime".
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

CHANNELS = 4


def changed(images):
    """How many channels of the first image are normalised, by ONNX's reference and by ONNX Runtime."""
    x = np.ones((images, CHANNELS, 2, 2), np.float32)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in ("x", "y")]
    node = helper.make_node("LRN", ["x"], ["y"], size=3, alpha=1.0, beta=0.75, bias=1.0)
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    results = (ReferenceEvaluator(model).run(None, {"x": x})[0], session.run(None, {"x": x})[0])
    return [int((result[0] != 1).any((1, 2)).sum()) for result in results]


single, several = changed(1), changed(CHANNELS)
print(
    f"channels of ones that are changed, of {CHANNELS}: one image {single[0]}, four images {several[0]} by the "
    f"reference; {single[1]} and {several[1]} by ONNX Runtime"
)
assert single == [1, 4]
assert several == [4, 4]
PYTHON
