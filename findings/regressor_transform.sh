#!/usr/bin/env bash
# Whether a LinearRegressor's post_transform is applied, by the number of its targets, in ONNX Runtime.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: with two targets LOGISTIC is applied to each; with one it is left out, and so is SOFTMAX, without a word,
# while PROBIT is applied. The schema knows no such difference; onnx.reference refuses every post_transform.
# Output seen: "one target: NONE 0.425, LOGISTIC 0.425, SOFTMAX 0.425, PROBIT -0.189; two targets: LOGISTIC 0.605".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper

FLOAT = TensorProto.FLOAT


def first(transform, targets):
    node = helper.make_node(
        "LinearRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        coefficients=[0.5, 0.25] * targets,
        intercepts=[0.1] * targets,
        targets=targets,
        post_transform=transform,
    )
    given = helper.make_tensor_value_info("x", FLOAT, [1, 2])
    result = helper.make_tensor_value_info("y", FLOAT, [1, targets])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 1)]
    model = helper.make_model(helper.make_graph([node], "g", [given], [result]), opset_imports=opsets, ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return round(float(session.run(None, {"x": np.array([[0.4, 0.5]], np.float32)})[0][0, 0]), 3)


one = {transform: first(transform, 1) for transform in ("NONE", "LOGISTIC", "SOFTMAX", "PROBIT")}
two = first("LOGISTIC", 2)
print("one target: " + ", ".join(f"{name} {value}" for name, value in one.items()) + f"; two targets: LOGISTIC {two}")
assert one == {"NONE": 0.425, "LOGISTIC": 0.425, "SOFTMAX": 0.425, "PROBIT": -0.189}
assert two == 0.605
PYTHON
