#!/usr/bin/env bash
# ONNX's version converter takes Hardmax of opset 12 for that of opset 13.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: in opsets 1 to 12 Hardmax, as Softmax, takes all dimensions from its axis (1 by default) on together; from
# opset 13 on it takes one, by default the last. The converter flattens around Softmax and LogSoftmax to keep what a
# model means, and raises Hardmax as it is: it then marks the largest number of each row instead of each image. ONNX
# Runtime follows both texts.
# Output seen: "ones in 2 images of 3 rows: opset 11 2, converted to 13 6; Softmax before and after 0e+00 apart".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, version_converter

x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)


def run(model):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def both(operator):
    """The results of opset 11, and of the model that is converted to opset 13."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"])], "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=6)
    return run(model), run(version_converter.convert_version(model, 13))


hard, soft = both("Hardmax"), both("Softmax")
ones = [int(result.sum()) for result in hard]
apart = float(np.abs(soft[0] - soft[1]).max())
print(
    f"ones in 2 images of 3 rows: opset 11 {ones[0]}, converted to 13 {ones[1]}; Softmax before and after {apart:.0e} "
    "apart"
)
assert ones == [2, 6]
assert apart < 1e-6
PYTHON
