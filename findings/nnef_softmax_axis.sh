#!/usr/bin/env bash
# Khronos' converter to NNEF writes Softmax without an axis along the channels, of every opset.
#
# Versions: nnef-tools 1.0.11, nnef 1.0.10, onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: since opset 13 Softmax without an axis runs along the last one; before, along all from axis 1 on as one. The
# converter writes "axes = [1]" for both and says nothing: of a tensor with three dimensions either is another function.
# With an axis in opset 13 it is right.
# Output seen: "rows of (2, 3, 4) sum to 1 along: ONNX Runtime, opset 13: axis 2; opset 11: axes 1 and 2; NNEF files of
# both: axes = [1]; with axis 2 named: axes = [2]".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet nnef-tools==1.0.11 nnef==1.0.10 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)


def converted(opset, **attributes):
    """What ONNX Runtime computes, and the axes in the converter's file."""
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)
    graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"], **attributes)], "g", [given], [result])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7), "model.onnx")
    session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    paths = ["--input-model", "model.onnx", "--output-model", "model.nnef"]
    formats = ["--input-format", "onnx", "--output-format", "nnef", "--keep-io-names"]
    subprocess.run([sys.executable, "-m", "nnef_tools.convert", *paths, *formats], check=True, capture_output=True)
    text = Path("model.nnef/graph.nnef").read_text()
    return session.run(None, {"x": x})[0], text.split("softmax(x, ")[1].split(")")[0]


(new, new_axes), (old, old_axes), (_, named) = converted(13), converted(11), converted(13, axis=2)
assert np.allclose(new.sum(2), 1) and np.allclose(old.sum((1, 2)), 1)
assert new_axes == old_axes
print(
    "rows of (2, 3, 4) sum to 1 along: ONNX Runtime, opset 13: axis 2; opset 11: axes 1 and 2; NNEF files of both: "
    f"{new_axes}; with axis 2 named: {named}"
)
assert new_axes == "axes = [1]" and named == "axes = [2]"
PYTHON
