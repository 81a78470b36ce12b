#!/usr/bin/env bash
# ONNX's version converter takes the batch axis off a model's inputs where it converts Scan.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: Scan of operator set 8 has a batch axis, that of set 9 has none. version_converter.convert_version drops
# the node's first input and the first size of all values around it, the model's own inputs and outputs among them: a
# model of [2, 3, 4] comes back as one of [3, 4] with the same number of steps, without an error or a warning, and
# refuses the arrays that it was made for. Nothing loops over the batch.
# Output seen: "inputs before [[2, 4], [2, 3, 4]], after [[4], [3, 4]]; the converted model refuses the arrays of the
# first".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, version_converter


def value(name, *shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


body = helper.make_graph(
    [helper.make_node("Add", ["before", "step"], ["after"]), helper.make_node("Identity", ["after"], ["collected"])],
    "body",
    [value("before", 4), value("step", 4)],
    [value("after", 4), value("collected", 4)],
)
node = helper.make_node("Scan", ["", "start", "steps"], ["last", "all"], num_scan_inputs=1, body=body)
inputs, outputs = [value("start", 2, 4), value("steps", 2, 3, 4)], [value("last", 2, 4), value("all", 2, 3, 4)]
graph = helper.make_graph([node], "g", inputs, outputs)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=3)
feeds = {"start": np.zeros((2, 4), np.float32), "steps": np.ones((2, 3, 4), np.float32)}


def sizes(proto):
    return [[size.dim_value for size in given.type.tensor_type.shape.dim] for given in proto.graph.input]


def run(proto):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


converted = version_converter.convert_version(model, 9)
before, after = sizes(model), sizes(converted)
try:
    run(converted)
    verdict = "takes"
except Exception:
    verdict = "refuses"
print(f"inputs before {before}, after {after}; the converted model {verdict} the arrays of the first")
assert np.array_equal(run(model), np.full((2, 4), 3, np.float32))
assert before == [[2, 4], [2, 3, 4]] and after == [[4], [3, 4]] and verdict == "refuses"
PYTHON
