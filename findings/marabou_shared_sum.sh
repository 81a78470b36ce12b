#!/usr/bin/env bash
# Marabou adds a bias to a product that other nodes of the ONNX model read without it.
#
# Versions: maraboupy 2.0.0, onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: the reader of ONNX writes an Add of a constant into the equation of the MatMul before it, and the sum takes
# the product's variables. Whoever reads the product elsewhere, such as a second Relu, gets the sum too. Properties are
# then proved of another network. What the package computes by ONNX Runtime beside it (evaluateWithoutMarabou) tells the
# difference.
# Output seen: "Relu(y + b) + Relu(y): ONNX Runtime [12.0, 24.0], Marabou [22.0, 44.0]; Relu(y + b) alone: ONNX Runtime
# [11.0, 22.0], Marabou [11.0, 22.0]".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet maraboupy==2.0.0 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import onnx
import onnx.parser
from maraboupy import Marabou

HEAD = """
<ir_version: 8, opset_import: ["" : 13]>
sums (float[1,2] x) => (float[1,2] out) <float[2,2] w = {1,0,0,1}, float[2] b = {10,20}>
"""
BODIES = {
    "Relu(y + b) + Relu(y)": "{ y = MatMul(x, w) s = Add(y, b) p = Relu(s) q = Relu(y) out = Add(p, q) }",
    "Relu(y + b) alone": "{ y = MatMul(x, w) s = Add(y, b) out = Relu(s) }",
}
told, right = [], {}
for name, body in BODIES.items():
    model = onnx.parser.parse_model(HEAD + body)
    onnx.checker.check_model(model)
    onnx.save(model, "sums.onnx")
    network = Marabou.read_onnx("sums.onnx")
    given = [np.array([[1.0, 2.0]])]
    runtime, own = network.evaluateWithoutMarabou(given)[0], network.evaluateWithMarabou(given, filename="log")[0]
    told.append(f"{name}: ONNX Runtime {runtime[0].tolist()}, Marabou {own[0].round(4).tolist()}")
    right[name] = np.allclose(runtime, own)
print("; ".join(told))
assert list(right.values()) == [False, True], right
PYTHON
