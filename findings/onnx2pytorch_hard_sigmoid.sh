#!/usr/bin/env bash
# onnx2pytorch computes HardSigmoid of slopes near a sixth, such as 0.16 and 0.175, with a sixth.
#
# Versions: onnx2pytorch 0.6.0, torch 2.14.1, onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: slopes that differ from a sixth by up to 0.01 are taken for it, and the module of PyTorch that knows no other
# slope computes them. Outputs differ by up to 0.02 from the model's, and are 0 where these are not.
# Output seen: "slope 0.16 at -3, 1, 2.5: ONNX Runtime [0.02, 0.66, 0.9], onnx2pytorch [0.0, 0.6667, 0.9167]; slope 0.175:
# ONNX Runtime [0.0, 0.675, 0.9375], onnx2pytorch [0.0, 0.6667, 0.9167]; slope 0.2: ONNX Runtime [0.0, 0.7, 1.0],
# onnx2pytorch [0.0, 0.7, 1.0]".
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

told, equal = [], {}
x = np.array([-3, 1, 2.5], np.float32)
for slope, place in ((0.16, " at -3, 1, 2.5"), (0.175, ""), (0.2, "")):
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 13]> gate (float[3] x) => (float[3] y) '
        f"{{ y = HardSigmoid<alpha = {slope}, beta = 0.5>(x) }}"
    )
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    right = session.run(None, {"x": x})[0]
    with torch.no_grad():
        own = ConvertModel(model)(torch.from_numpy(x)).numpy()
    shown = [[round(float(value), 4) for value in values] for values in (right, own)]
    told.append(f"slope {slope}{place}: ONNX Runtime {shown[0]}, onnx2pytorch {shown[1]}")
    equal[slope] = bool(np.allclose(right, own, atol=1e-5))
print("; ".join(told))
assert equal == {0.16: False, 0.175: False, 0.2: True}, equal
PYTHON
