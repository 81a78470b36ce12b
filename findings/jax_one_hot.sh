#!/usr/bin/env bash
# jaxonnxruntime's OneHot marks a place for indices that are out of range, where ONNX leaves a row without a mark.
#
# Versions: jaxonnxruntime 0.3.0, jax 0.10.2, onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: indices are in [-depth, depth - 1], and a row of another index has off values alone, by which exporters code
# labels to be ignored. jaxonnxruntime takes indices modulo the depth, so that each of them marks a class.
# Output seen: "OneHot of 1, 4, -5, depth 4: ONNX Runtime [[0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]], jaxonnxruntime
# [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]]".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet jaxonnxruntime==0.3.0 jax==0.10.2 absl-py==2.5.0 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import onnx
import onnx.parser
import onnxruntime
from jaxonnxruntime import config
from jaxonnxruntime.backend import Backend

config.update("jaxort_only_allow_initializers_as_static_args", False)
model = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["" : 13]> marks (int64[3] x) => (float[3,4] y) '
    "<int64 depth = {4}, float[2] values = {0,1}> { y = OneHot(x, depth, values) }"
)
onnx.checker.check_model(model)
x = np.array([1, 4, -5])
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
right = session.run(None, {"x": x})[0].astype(int).tolist()
own = np.asarray(Backend.prepare(model).run([x])[0]).astype(int).tolist()
print(f"OneHot of 1, 4, -5, depth 4: ONNX Runtime {right}, jaxonnxruntime {own}")
assert right == [[0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]], right
assert own == [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]], own
PYTHON
