#!/usr/bin/env bash
# onnx2pytorch multiplies by a constant from the right where the ONNX model has it on the left.
#
# Versions: onnx2pytorch 0.6.0, torch 2.14.1, onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: a MatMul or Gemm with a constant operand becomes a torch.nn.Linear of that constant, whichever operand it is.
# W x, as in graph networks with a constant adjacency and in filter banks, is computed as x W. With square matrices
# nothing tells the difference but the numbers.
# Output seen: "MatMul(w, x): ONNX Runtime [[3.0, 4.0], [2.0, 4.0]], onnx2pytorch [[4.0, 1.0], [8.0, 3.0]]; Gemm(w, x, b):
# ONNX Runtime [[4.0, 5.0], [3.0, 5.0]], onnx2pytorch [[5.0, 2.0], [9.0, 4.0]]".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx2pytorch==0.6.0 onnx==1.23.2 onnxruntime==1.32.0 torch==2.14.1 torchvision==0.29.1 numpy==2.4.6

cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import onnx
import onnx.parser
import onnxruntime
import torch
from onnx2pytorch import ConvertModel

told = []
x = np.array([[1, 2], [3, 4]], np.float32)
for node in ("MatMul(w, x)", "Gemm(w, x, b)"):
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 13]> product (float[2,2] x) => (float[2,2] y) '
        f"<float[2,2] w = {{0,1,2,0}}, float[2] b = {{1,1}}> {{ y = {node} }}"
    )
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    right = session.run(None, {"x": x})[0]
    with torch.no_grad():
        own = ConvertModel(model)(torch.from_numpy(x)).numpy()
    told.append(f"{node}: ONNX Runtime {right.tolist()}, onnx2pytorch {own.tolist()}")
    bias = np.float32(1 if "b" in node else 0)
    assert np.array_equal(right, np.array([[0, 1], [2, 0]], np.float32) @ x + bias)
    assert np.array_equal(own, x @ np.array([[0, 1], [2, 0]], np.float32) + bias), told
print("; ".join(told))
PYTHON
