#!/usr/bin/env bash
# How ONNX's own reference counts and sums the windows of pools.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: LpPool (version 18) is the norm of the numbers in a window. onnx.reference takes the mean of those and
# multiplies by the size of the kernel, so that a window of which ceil_mode leaves a part over the end comes out too
# large. AveragePool (version 19) with dilation and auto_pad=VALID has the windows that fit, of the dilated kernel; the
# reference counts those of the kernel without dilation and fills the places with zeros. ONNX Runtime is right in both.
# Output seen: "norm of 2 x 2 ones in the last window of 3 x 3: reference 9, ONNX Runtime 4; dilated means of 1 to 7:
# [3, 4, 5, 0, 0] and [3, 4, 5]".
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

onnxruntime.set_default_logger_severity(3)


def pooled(operator, x, **attributes):
    """The results by ONNX's reference and by ONNX Runtime."""
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"], **attributes)], "g", [given], [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    results = (ReferenceEvaluator(model).run(None, {"x": x})[0], session.run(None, {"x": x})[0])
    return [array.ravel().round(4).tolist() for array in results]


ones, numbers = np.ones((1, 1, 4, 4), np.float32), np.arange(1, 8, dtype=np.float32).reshape(1, 1, 7)
norm, right = pooled("LpPool", ones, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, p=1)
mean, few = pooled("AveragePool", numbers, kernel_shape=[3], dilations=[2], auto_pad="VALID")
shown = ["[" + ", ".join(f"{number:g}" for number in each) + "]" for each in (mean, few)]
print(
    f"norm of 2 x 2 ones in the last window of 3 x 3: reference {norm[-1]:g}, ONNX Runtime {right[-1]:g}; "
    f"dilated means of 1 to 7: {shown[0]} and {shown[1]}"
)
assert (norm[-1], right[-1]) == (9, 4)
assert mean == [3, 4, 5, 0, 0] and few == [3, 4, 5]
PYTHON
