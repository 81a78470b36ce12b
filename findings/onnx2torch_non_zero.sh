#!/usr/bin/env bash
# onnx2torch gives the places of NonZero transposed: a row for each place, where ONNX has a column.
#
# Versions: onnx2torch 1.5.15, torch 2.14.1, onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: ONNX's NonZero has a row for each dimension and a column for each place. onnx2torch gives what
# torch.nonzero gives, a row for each place. Where as many places as dimensions are found nothing tells the difference
# but the numbers. ONNX exporters write Transpose behind NonZero, so that even models from PyTorch are read wrong.
# Output seen: "three places of two dimensions: ONNX Runtime (2, 3), onnx2torch (3, 2); two places: ONNX Runtime
# [[0, 0], [1, 2]], onnx2torch [[0, 1], [0, 2]]".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx2torch==1.5.15 onnx==1.23.2 onnxruntime==1.32.0 torch==2.14.1 torchvision==0.29.1 numpy==2.4.6

cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
import torch
from onnx import TensorProto, helper
from onnx2torch import convert


def places(values):
    """The places by ONNX Runtime and by onnx2torch."""
    x = np.array(values, np.float32)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    result = helper.make_tensor_value_info("y", TensorProto.INT64, [2, None])
    graph = helper.make_graph([helper.make_node("NonZero", ["x"], ["y"])], "g", [given], [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with torch.no_grad():
        return session.run(None, {"x": x})[0], convert(model)(torch.from_numpy(x)).numpy()


three, two = places([[0, 1, 2], [3, 0, 0]]), places([[0, 1, 2], [0, 0, 0]])
print(
    f"three places of two dimensions: ONNX Runtime {three[0].shape}, onnx2torch {three[1].shape}; two places: "
    f"ONNX Runtime {two[0].tolist()}, onnx2torch {two[1].tolist()}"
)
assert three[0].shape == (2, 3) and three[1].shape == (3, 2)
assert (two[0].T == two[1]).all() and (two[0] != two[1]).any()
PYTHON
