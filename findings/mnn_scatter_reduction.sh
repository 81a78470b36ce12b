#!/usr/bin/env bash
# MNN overwrites where an ONNX model adds, or takes the larger number.
#
# Versions: mnn 3.6.1, onnx 1.23.2, on x86-64.
# Behaviour: ScatterElements and ScatterND have a reduction: since opset 16 what is scattered is added to what is there,
# or multiplied by it, since 18 the larger or smaller number is taken. MNN converts such nodes without a word. It knows
# add and mul of ScatterElements, takes the number that came last for its max and min, and so for each reduction of
# ScatterND: sums over the edges of a graph, or counts in bins, are lost.
# Output seen: "numbers [10, 20, 30], 1 and 2 to place 1 by ScatterElements: add [10, 23, 30], MNN the same; max [10,
# 20, 30], MNN [10, 2, 30]; min [10, 1, 30], MNN [10, 2, 30]; by ScatterND: add [10, 23, 30], MNN [10, 2, 30]; mul [10,
# 40, 30], MNN [10, 2, 30]".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet mnn==3.6.1 onnx==1.23.2 numpy==2.4.6

cd "$folder"
cat > scatter.py <<'PYTHON'
import _tools
import MNN
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

x = np.array([10, 20, 30], np.float32)


def scattered(reduction, operator="ScatterElements"):
    """The numbers by ONNX's reference and by MNN."""
    indices = np.array([1, 1]) if operator == "ScatterElements" else np.array([[1], [1]])
    constants = {"indices": indices, "updates": np.array([1, 2], np.float32)}
    kept = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("x", "y")]
    node = helper.make_node(operator, ["x", "indices", "updates"], ["y"], reduction=reduction)
    graph = helper.make_graph([node], "g", values[:1], values[1:], kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.save(model, "m.onnx")
    _tools.mnnconvert(["mnnconvert", "-f", "ONNX", "--modelFile", "m.onnx", "--MNNModel", "m.mnn", "--bizCode", "m"])
    given = MNN.expr.placeholder([3], MNN.expr.NCHW, MNN.numpy.float32)
    given.write(x)
    (result,) = MNN.nn.load_module_from_file("m.mnn", ["x"], ["y"]).forward([given])
    pair = ReferenceEvaluator(model).run(None, {"x": x})[0], np.array(result.read())
    return [numbers.astype(int).tolist() for numbers in pair]


def told(kind, right, wrong):
    return f"{kind} {right}, MNN {'the same' if wrong == right else wrong}"


elements = {kind: scattered(kind) for kind in ("add", "max", "min")}
nested = {kind: scattered(kind, "ScatterND") for kind in ("add", "mul")}
texts = ["; ".join(told(kind, *pair) for kind, pair in pairs.items()) for pairs in (elements, nested)]
print(f"numbers [10, 20, 30], 1 and 2 to place 1 by ScatterElements: {texts[0]}; by ScatterND: {texts[1]}")
assert elements["add"] == [[10, 23, 30]] * 2
assert elements["max"] == [[10, 20, 30], [10, 2, 30]] and elements["min"] == [[10, 1, 30], [10, 2, 30]]
assert nested["add"] == [[10, 23, 30], [10, 2, 30]] and nested["mul"] == [[10, 40, 30], [10, 2, 30]]
PYTHON
"$folder/venv/bin/python" scatter.py | grep '^numbers'
