#!/usr/bin/env bash
# Marabou reads ONNX's pools without pads, dilations and ceil_mode, and convolutions without dilations and auto_pad.
#
# Versions: maraboupy 2.0.0, onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: the reader of ONNX takes kernel_shape and strides of a MaxPool, and strides and pads of a Conv, and drops
# the other attributes without a word. Outputs have other values and mostly another shape than the model declares.
# Output seen: "MaxPool with pads: ONNX Runtime (1, 1, 3, 3), Marabou (1, 1, 1, 1); MaxPool with ceil_mode: ONNX Runtime
# (1, 1, 2, 2), Marabou (1, 1, 1, 1); MaxPool with dilations: ONNX Runtime (1, 1, 1, 1), Marabou (1, 1, 2, 2); Conv with
# dilations: ONNX Runtime (1, 1, 1, 1), Marabou (1, 1, 2, 2)".
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

CASES = {
    "MaxPool with pads": (2, 3, "MaxPool<kernel_shape = [2,2], pads = [1,1,1,1]>(x)"),
    "MaxPool with ceil_mode": (4, 2, "MaxPool<kernel_shape = [3,3], strides = [2,2], ceil_mode = 1>(x)"),
    "MaxPool with dilations": (3, 1, "MaxPool<kernel_shape = [2,2], dilations = [2,2]>(x)"),
    "Conv with dilations": (3, 1, "Conv<kernel_shape = [2,2], dilations = [2,2]>(x, w)"),
}
told = []
for name, (size, result, node) in CASES.items():
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 13]> windows (float[1,1,{size},{size}] x) '
        f"=> (float[1,1,{result},{result}] out) <float[1,1,2,2] w = {{1,1,1,1}}> {{ out = {node} }}"
    )
    onnx.checker.check_model(model)
    onnx.save(model, "windows.onnx")
    network = Marabou.read_onnx("windows.onnx")
    given = [np.arange(size * size, dtype=np.float64).reshape(1, 1, size, size)]
    runtime, own = network.evaluateWithoutMarabou(given)[0], network.evaluateWithMarabou(given, filename="log")[0]
    told.append(f"{name}: ONNX Runtime {runtime.shape}, Marabou {own.shape}")
    assert runtime.shape == (1, 1, result, result) != own.shape, told
print("; ".join(told))
PYTHON
