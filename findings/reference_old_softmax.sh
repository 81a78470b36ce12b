#!/usr/bin/env bash
# ONNX's own reference computes Softmax and its like of old opsets by the new definition.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: in opsets 1 to 12 Softmax, LogSoftmax and Hardmax take all dimensions from their axis on together, and the
# axis is 1 by default; from opset 13 on they take one axis, by default the last. onnx.reference has one implementation
# of each, without a warning for old models: rows that should sum up to 1 together do so one by one. ONNX Runtime
# follows the opset.
# Output seen: "sum of Softmax over 3 rows of one image, opset 11: reference 3, ONNX Runtime 1; ones of Hardmax: 3 and
# 1; opset 13: 3 and 3".
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

x = np.random.default_rng(0).standard_normal((1, 3, 4)).astype(np.float32)


def sums(operator, opset):
    """The sum of all results by ONNX's reference and by ONNX Runtime."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"])], "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=6)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    results = (ReferenceEvaluator(model).run(None, {"x": x})[0], session.run(None, {"x": x})[0])
    return [round(float(result.sum()), 4) for result in results]


soft, hard, new = sums("Softmax", 11), sums("Hardmax", 11), sums("Softmax", 13)
print(
    f"sum of Softmax over 3 rows of one image, opset 11: reference {soft[0]:g}, ONNX Runtime {soft[1]:g}; "
    f"ones of Hardmax: {hard[0]:g} and {hard[1]:g}; opset 13: {new[0]:g} and {new[1]:g}"
)
assert soft == hard == [3, 1]
assert new == [3, 3]
PYTHON
