#!/usr/bin/env bash
# onnx-diagnostic's evaluator divides integers in floating point.
#
# Versions: onnx-diagnostic 0.9.3, torch 2.14.1, transformers 5.24.0, onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: TorchOnnxEvaluator runs ONNX graphs by PyTorch's functions. Div of integers drops the fraction by ONNX's
# text; the evaluator calls torch's division of any numbers, so that the result is a float tensor with a fraction, though
# the model declares an integer one. Sizes that graphs compute from shapes are such quotients.
# Output seen: "7 / 2 and -7 / 2 of int64: ONNX Runtime [3, -3] (int64), TorchOnnxEvaluator [3.5, -3.5] (float32)".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx-diagnostic==0.9.3 scipy==1.17.1 transformers==5.24.0 onnx==1.23.2 onnxruntime==1.32.0 torch==2.14.1 numpy==2.4.6

cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
import torch
from onnx import TensorProto, helper
from onnx_diagnostic.reference import TorchOnnxEvaluator

feeds = {"a": np.array([7, -7], np.int64), "b": np.array([2, 2], np.int64)}
given = [helper.make_tensor_value_info(name, TensorProto.INT64, [2]) for name in feeds]
result = helper.make_tensor_value_info("y", TensorProto.INT64, [2])
graph = helper.make_graph([helper.make_node("Div", ["a", "b"], ["y"])], "g", given, [result])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
(right,) = session.run(None, feeds)
(other,) = TorchOnnxEvaluator(model).run(None, {name: torch.from_numpy(value) for name, value in feeds.items()})
other = other.numpy()
print(
    f"7 / 2 and -7 / 2 of int64: ONNX Runtime {right.tolist()} ({right.dtype}), "
    f"TorchOnnxEvaluator {other.tolist()} ({other.dtype})"
)
assert right.tolist() == [3, -3] and right.dtype == np.int64
assert other.tolist() == [3.5, -3.5] and other.dtype == np.float32
PYTHON
