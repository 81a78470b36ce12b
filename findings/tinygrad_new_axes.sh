#!/usr/bin/env bash
# tinygrad puts new dimensions elsewhere where an ONNX model counts them from the end.
#
# Versions: tinygrad 0.14.0, onnx 1.23.2, numpy 2.4.6.
# Behaviour: negative axes of Unsqueeze count from the end of the result (since version 11), those of Squeeze from the
# end of its operand. tinygrad adds or drops one dimension after another, and counts each from the end that there is
# then: with two of them the result has another shape, by which it may be broadcast otherwise. Of the same axes as
# positive numbers shapes are right.
# Output seen: "Unsqueeze of 3 numbers by [-1, -2]: [3, 1, 1], tinygrad [1, 3, 1]; by [1, 2] [3, 1, 1]; Squeeze of [1,
# 5, 1, 1] by [-1, -2]: [1, 5], tinygrad [1, 5, 1]".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tinygrad==0.14.0 onnx==1.23.2 numpy==2.4.6

cd "$folder"
# The device that runs in Python needs no compiler.
DEV=PYTHON "$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from tinygrad import Tensor
from tinygrad.nn.onnx import OnnxRunner


def shapes(operator, x, axes):
    """The result's shape by ONNX's reference and by tinygrad."""
    kept = [helper.make_tensor("axes", TensorProto.INT64, [len(axes)], axes)]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node(operator, ["x", "axes"], ["y"])], "g", [given], [result], kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, "m.onnx")
    right, other = ReferenceEvaluator(model).run(None, {"x": x})[0], OnnxRunner("m.onnx")({"x": Tensor(x)})["y"]
    return [list(right.shape), list(other.shape)]


numbers = np.arange(3, dtype=np.float32)
new, counted = shapes("Unsqueeze", numbers, [-1, -2]), shapes("Unsqueeze", numbers, [1, 2])
dropped = shapes("Squeeze", np.zeros((1, 5, 1, 1), np.float32), [-1, -2])
print(
    f"Unsqueeze of 3 numbers by [-1, -2]: {new[0]}, tinygrad {new[1]}; by [1, 2] {counted[1]}; Squeeze of [1, 5, 1, "
    f"1] by [-1, -2]: {dropped[0]}, tinygrad {dropped[1]}"
)
assert new == [[3, 1, 1], [1, 3, 1]] and counted == [[3, 1, 1]] * 2
assert dropped == [[1, 5], [1, 5, 1]]
PYTHON
