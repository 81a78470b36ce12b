#!/usr/bin/env bash
# ONNX's own reference gives other Indices of MaxPool than those of its values.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: the second result of MaxPool (version 12) has the places of the largest numbers in the input. Without
# strides, or with strides of 1, onnx.reference counts them in rows of another length, so that the numbers there are not
# those of the first result; with pads some places are negative, and storage_order is not looked at. With strides of 2
# it is right, as ONNX Runtime is in all.
# Output seen: "places of the largest of 0 to 15 in windows of 2 x 2: reference [4, 5, 6, 8, 9, 10, 12, 13, 14], ONNX
# Runtime [5, 6, 7, 9, 10, 11, 13, 14, 15]; least place with pads -5 and 0".
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

x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)


def results(**attributes):
    """Values and places, by ONNX's reference and by ONNX Runtime."""
    node = helper.make_node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2], **attributes)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    kinds = {"y": TensorProto.FLOAT, "i": TensorProto.INT64}
    declared = [helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()]
    graph = helper.make_graph([node], "g", [given], declared)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=7)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    computed = (ReferenceEvaluator(model).run(None, {"x": x}), session.run(None, {"x": x}))
    return [[array.astype(int).ravel().tolist() for array in arrays] for arrays in computed]


(values, places), (largest, right) = results()
least = [min(computed[1]) for computed in results(pads=[1, 1, 1, 1])]
stepped, same = results(strides=[2, 2])
print(
    f"places of the largest of 0 to 15 in windows of 2 x 2: reference {places}, ONNX Runtime {right}; "
    f"least place with pads {least[0]} and {least[1]}"
)
# The numbers are their own places.
assert values == largest == right == [5, 6, 7, 9, 10, 11, 13, 14, 15]
assert places == [4, 5, 6, 8, 9, 10, 12, 13, 14]
assert least == [-5, 0]
assert stepped == same
PYTHON
