#!/usr/bin/env bash
# ONNX Runtime raises integers to powers in floating point.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0, numpy 2.4.6.
# Behaviour: Pow takes integers since version 12, and its result has their type; int64 holds 94906267^2 and 3^39. ONNX
# Runtime computes them by way of float64, whose 53 bits do not, so that the last digits are others, with no error,
# whether the exponent is constant or given. Mul of the same numbers is exact, and so is Pow in ONNX's reference. Below
# 2^53 nothing differs.
# Output seen: "94906267^2: reference 9007199515875289, ONNX Runtime 9007199515875288, product 9007199515875289; 3^39:
# 4052555153018976267 and 4052555153018976256; 3^33 the same".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator


def results(operator, base, other):
    """The result by ONNX's reference and by ONNX Runtime."""
    values = [helper.make_tensor_value_info(name, TensorProto.INT64, [1]) for name in ("x", "z", "y")]
    graph = helper.make_graph([helper.make_node(operator, ["x", "z"], ["y"])], "g", values[:2], values[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    given = {"x": np.array([base]), "z": np.array([other])}
    return int(ReferenceEvaluator(model).run(None, given)[0][0]), int(session.run(None, given)[0][0])


square, (_, product) = results("Pow", 94906267, 2), results("Mul", 94906267, 94906267)
large, small = results("Pow", 3, 39), results("Pow", 3, 33)
print(
    f"94906267^2: reference {square[0]}, ONNX Runtime {square[1]}, product {product}; 3^39: {large[0]} and {large[1]}; "
    f"3^33 {'the same' if small[0] == small[1] else 'not the same'}"
)
assert square[0] == product == 94906267**2 and square[1] == product - 1
assert large[0] == 3**39 and large[1] == int(float(3**39))
assert small[0] == small[1] == 3**33
PYTHON
