#!/usr/bin/env bash
# qonnx subtracts the zero point of stored weights in bytes, which wrap around.
#
# Versions: qonnx 1.0.0, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: QCDQToQuant turns a DequantizeLinear of constant codes into a Quant node of floats. It subtracts the zero
# point in the codes' own type, without an error: of unsigned bytes all codes below it become large positive numbers,
# which the Quant node then cuts at the upper end. ONNX's DequantizeLinear (all versions) subtracts in integers that
# hold the result. Zero points of 0 are right.
# Output seen: "bytes 0, 100, 128, 255 by 0.5: zero point 0 [0.0, 50.0, 64.0, 127.5], converted the same; zero point 128
# [-64.0, -14.0, 0.0, 63.5], converted [63.5, 63.5, 0.0, 63.5]".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet qonnx==1.0.0 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
from onnx import TensorProto, helper, numpy_helper
from qonnx.core.modelwrapper import ModelWrapper
from qonnx.core.onnx_exec import execute_onnx
from qonnx.transformation.infer_shapes import InferShapes
from qonnx.transformation.qcdq_to_qonnx import QCDQToQuant

x = {"x": np.ones((1, 4), np.float32)}


def weights(zero_point):
    """The weights by ONNX's operators, and those of the converted model."""
    codes = np.diag([0, 100, 128, 255]) + (1 - np.eye(4)) * zero_point
    kept = {"codes": codes.astype(np.uint8), "scale": np.float32(0.5), "zero": np.uint8(zero_point)}
    nodes = [
        helper.make_node("DequantizeLinear", ["codes", "scale", "zero"], ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("x", "y")]
    constants = [numpy_helper.from_array(np.asarray(array), name) for name, array in kept.items()]
    graph = helper.make_graph(nodes, "g", declared[:1], declared[1:], constants)
    model = ModelWrapper(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    model = model.transform(InferShapes())
    before = execute_onnx(model, x)["y"]
    return before[0].tolist(), execute_onnx(model.transform(QCDQToQuant()), x)["y"][0].tolist()


plain, same = weights(0)
right, wrong = weights(128)
print(
    f"bytes 0, 100, 128, 255 by 0.5: zero point 0 {plain}, converted {'the same' if same == plain else same}; "
    f"zero point 128 {right}, converted {wrong}"
)
assert plain == same == [0, 50, 64, 127.5]
assert right == [-64, -14, 0, 63.5]
assert wrong == [63.5, 63.5, 0, 63.5]
PYTHON
