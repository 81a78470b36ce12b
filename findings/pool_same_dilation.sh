#!/usr/bin/env bash
# How many windows ONNX Runtime's pools have with dilation where auto_pad keeps the size.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: by the text of MaxPool (opset 12) and AveragePool (opset 19), SAME_UPPER and SAME_LOWER give as many
# windows as the input has elements, divided by the stride and rounded up, and pad for the extent of the dilated kernel.
# ONNX Runtime pads for the kernel without its dilation, so that windows are missing, and only warns that the shape
# differs from the one that ONNX infers. The same padding written out as pads is right.
# Output seen: "7 elements, kernel 3, dilation 2: inferred 7; MaxPool 5, AveragePool 5, with pads 7".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, shape_inference

onnxruntime.set_default_logger_severity(3)
x = np.arange(1, 8, dtype=np.float32).reshape(1, 1, 7)


def pool(operator, **padding):
    node = helper.make_node(operator, ["x"], ["y"], kernel_shape=[3], dilations=[2], **padding)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [given], [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def windows(model):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0].ravel().tolist()


same = pool("MaxPool", auto_pad="SAME_UPPER")
inferred = shape_inference.infer_shapes(same).graph.output[0].type.tensor_type.shape.dim[2].dim_value
largest, mean = windows(same), windows(pool("AveragePool", auto_pad="SAME_LOWER"))
written = windows(pool("MaxPool", pads=[2, 2]))
print(
    f"7 elements, kernel 3, dilation 2: inferred {inferred}; MaxPool {len(largest)}, AveragePool {len(mean)}, "
    f"with pads {len(written)}"
)
assert inferred == len(written) == 7 and written == [3, 4, 5, 6, 7, 6, 7]
assert largest == [4, 5, 6, 7, 6] and len(mean) == 5
PYTHON
