#!/usr/bin/env bash
# onnxoptimizer cuts the whole shape where a model cuts a part of it.
#
# Versions: onnxoptimizer 0.4.2, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: Shape has start and end since version 15, and Slice counts from the first size that it gives. The default
# passes compute the constant that such a Slice leaves, and count from the first dimension of the operand: of 2 images
# of 3 channels, the number of channels becomes 2. The checker accepts the model, and nothing is said. Of the whole
# shape it is right. ONNX Runtime, by default, counts from the first size that Shape gives.
# Output seen: "of [2, 3, height], from channels on: first size 3, optimised 2; from images on 2 and 2; of [2, 3, 4],
# from channels on 3 and 2".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnxoptimizer==0.4.2 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxoptimizer
import onnxruntime
from onnx import TensorProto, helper, numpy_helper


def sizes(start, height):
    """The size that the model cuts out, and that of the optimised model, which reads no input any more."""
    nodes = [
        helper.make_node("Shape", ["x"], ["sizes"], start=start),
        helper.make_node("Slice", ["sizes", "start", "end"], ["size"]),
        helper.make_node("Identity", ["x"], ["same"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, height])
    same = helper.make_tensor_value_info("same", TensorProto.FLOAT, [2, 3, height])
    size = helper.make_tensor_value_info("size", TensorProto.INT64, [1])
    constants = [numpy_helper.from_array(np.array([value]), name) for name, value in (("start", 0), ("end", 1))]
    graph = helper.make_graph(nodes, "g", [x], [size, same], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    found = []
    for candidate in (model, onnxoptimizer.optimize(model)):
        session = onnxruntime.InferenceSession(candidate.SerializeToString(), providers=["CPUExecutionProvider"])
        found.append(int(session.run(["size"], {"x": np.zeros((2, 3, 4), np.float32)})[0][0]))
    return found


open_height, whole, known = sizes(1, "height"), sizes(0, "height"), sizes(1, 4)
print(
    f"of [2, 3, height], from channels on: first size {open_height[0]}, optimised {open_height[1]}; from images on "
    f"{whole[0]} and {whole[1]}; of [2, 3, 4], from channels on {known[0]} and {known[1]}"
)
assert open_height == known == [3, 2]
assert whole == [2, 2]
PYTHON
