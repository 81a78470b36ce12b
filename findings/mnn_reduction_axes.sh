#!/usr/bin/env bash
# MNN reduces all dimensions where an ONNX model names some as an input.
#
# Versions: mnn 3.6.1, onnx 1.23.2, on x86-64.
# Behaviour: from opset 18 on the axes of all reductions are an input (of ReduceSum from 13 on). MNN reads it for
# ReduceSum, ReduceMean, ReduceMax, ReduceMin and ReduceProd, and not for ReduceL1, ReduceL2, ReduceSumSquare,
# ReduceLogSum and ReduceLogSumExp: their results are one number, that of all elements, with no error. By the attribute
# of opset 13 all are right.
# Output seen: "rows of [[1, 2], [3, 4]]: right by the attribute: all; by the input: ReduceSum, ReduceMean, ReduceMax,
# ReduceMin, ReduceProd; one number of all: ReduceL1, ReduceL2, ReduceSumSquare, ReduceLogSum, ReduceLogSumExp".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet mnn==3.6.1 onnx==1.23.2 numpy==2.4.6

cd "$folder"
cat > reductions.py <<'PYTHON'
import _tools
import MNN
import numpy as np
import onnx
from onnx import TensorProto, helper

x = np.array([[1, 2], [3, 4]], np.float32)
REDUCTIONS = {
    "ReduceSum": np.sum,
    "ReduceMean": np.mean,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceL1": lambda v, axis: np.abs(v).sum(axis),
    "ReduceL2": lambda v, axis: np.sqrt((v * v).sum(axis)),
    "ReduceSumSquare": lambda v, axis: (v * v).sum(axis),
    "ReduceLogSum": lambda v, axis: np.log(v.sum(axis)),
    "ReduceLogSumExp": lambda v, axis: np.log(np.exp(v).sum(axis)),
}


def reduced(operator, version, constants, **attributes):
    """The rows' results by MNN."""
    inputs = ["x", *(tensor.name for tensor in constants)]
    node = helper.make_node(operator, inputs, ["y"], keepdims=0, **attributes)
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)]
    values.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [2]))
    graph = helper.make_graph([node], "g", values[:1], values[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8), "m.onnx")
    _tools.mnnconvert(["mnnconvert", "-f", "ONNX", "--modelFile", "m.onnx", "--MNNModel", "m.mnn", "--bizCode", "m"])
    given = MNN.expr.placeholder(list(x.shape), MNN.expr.NCHW, MNN.numpy.float32)
    given.write(x)
    (result,) = MNN.nn.load_module_from_file("m.mnn", ["x"], ["y"]).forward([given])
    return np.array(result.read())


axes = [helper.make_tensor("axes", TensorProto.INT64, [1], [1])]
whole, right, wrong = [], [], []
for operator, compute in REDUCTIONS.items():
    if operator != "ReduceSum":
        old = reduced(operator, 13, [], axes=[1])
        whole.append(old.shape == (2,) and np.allclose(old, compute(x, axis=1), rtol=1e-3))
    found = reduced(operator, 18, axes)
    if found.shape == (2,) and np.allclose(found, compute(x, axis=1), rtol=1e-3):
        right.append(operator)
    elif found.size == 1 and np.allclose(found, compute(x, axis=None), rtol=1e-3):
        wrong.append(operator)
print(
    f"rows of [[1, 2], [3, 4]]: right by the attribute: {'all' if all(whole) else whole}; by the input: "
    f"{', '.join(right)}; one number of all: {', '.join(wrong)}"
)
assert all(whole)
assert right == [*REDUCTIONS][:5] and wrong == [*REDUCTIONS][5:]
PYTHON
"$folder/venv/bin/python" reductions.py | grep '^rows'
