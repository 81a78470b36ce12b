#!/usr/bin/env bash
# onnxoptimizer's default passes put zeros around an image into the pads of a pool.
#
# Versions: onnxoptimizer 0.4.2, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: what MaxPool pads is never the largest (versions 1 to 22), and AveragePool does not count it by default.
# fuse_pad_into_pool, one of the default passes, moves a Pad by zeros into the attribute pads of a MaxPool, so that
# windows of negative numbers lose their zeros; into an AveragePool it moves them where that has pads of its own, which
# then count. With auto_pad the moved pads are ignored, and the result is smaller.
# Output seen: "zeros around a negative image: largest 0, optimised -1; mean of a corner with pads -0.25 and -0.11;
# windows with auto_pad 16 and 9".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnxoptimizer==0.4.2 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxoptimizer
import onnxruntime
from onnx import TensorProto, helper

onnxruntime.set_default_logger_severity(3)
x = -np.ones((1, 1, 6, 6), np.float32)


def results(operator, **attributes):
    """What a padded pool computes, before and after optimisation."""
    nodes = [
        helper.make_node("Pad", ["x", "ones"], ["wide"]),
        helper.make_node(operator, ["wide"], ["y"], kernel_shape=[3, 3], **attributes),
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    ones = helper.make_tensor("ones", TensorProto.INT64, [8], [0, 0, 1, 1, 0, 0, 1, 1])
    graph = helper.make_graph(nodes, "g", [given], [result], [ones])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    optimised = onnxoptimizer.optimize(model)
    assert [node.op_type for node in optimised.graph.node] == [operator]
    return run(model), run(optimised)


def run(model):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


largest = [float(array[0, 0, 0, 0]) for array in results("MaxPool")]
mean = [float(array[0, 0, 0, 0]) for array in results("AveragePool", pads=[1, 1, 1, 1])]
windows = [array.size for array in results("MaxPool", auto_pad="SAME_UPPER", strides=[2, 2])]
print(
    f"zeros around a negative image: largest {largest[0]:g}, optimised {largest[1]:g}; mean of a corner with pads "
    f"{mean[0]:.2f} and {mean[1]:.2f}; windows with auto_pad {windows[0]} and {windows[1]}"
)
assert largest == [0, -1]
assert abs(mean[0] - mean[1]) > 0.02
assert windows == [16, 9]
PYTHON
