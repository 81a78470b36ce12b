#!/usr/bin/env bash
# ONNX's reference divides by the sum of signed numbers in LpNormalization with p=1.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: the norm of order 1 is the sum of magnitudes, by the text of LpNormalization (all versions) and in ONNX
# Runtime. onnx.reference sums the numbers with their signs: results have norms other than 1, and where the numbers
# cancel all results are 0. With p=2, the default, it is right.
# Output seen: "[1, -2, 5] by its norm: ONNX Runtime [0.125, -0.25, 0.625], reference [0.25, -0.5, 1.25]; [1, -1]: [0.5,
# -0.5] and [0.0, 0.0]; p=2 the same".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator


def normalised(numbers, order):
    """The numbers by their norm, by ONNX Runtime and by the reference."""
    x = {"x": np.array(numbers, np.float32)}
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [len(numbers)]) for name in ("x", "y")]
    node = helper.make_node("LpNormalization", ["x"], ["y"], axis=0, p=order)
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [result.tolist() for result in (session.run(None, x)[0], ReferenceEvaluator(model).run(None, x)[0])]


(right, wrong), (halves, none) = normalised([1, -2, 5], 1), normalised([1, -1], 1)
one, other = normalised([3, -4], 2)
print(
    f"[1, -2, 5] by its norm: ONNX Runtime {right}, reference {wrong}; [1, -1]: {halves} and {none}; p=2 "
    f"{'the same' if np.allclose(one, other) else (one, other)}"
)
assert right == [0.125, -0.25, 0.625] and wrong == [0.25, -0.5, 1.25]
assert halves == [0.5, -0.5] and none == [0, 0]
assert np.allclose(one, other) and np.allclose(one, [0.6, -0.8])
PYTHON
