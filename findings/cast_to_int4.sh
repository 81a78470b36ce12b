#!/usr/bin/env bash
# How Cast turns floats into integers of four bits, beside integers of eight.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: ONNX's Cast drops what is behind the point, and so do its reference and ONNX Runtime for int8. For int4 and
# uint4 ONNX Runtime rounds to the nearest integer instead, ties away from zero: 1.7 becomes 2, and 2.5 becomes 3, which
# is not how QuantizeLinear rounds ties either. A model that narrows in two steps, by int8, gives other numbers.
# Output seen: "int4: ONNX [ 1 -1  2 -2  0], ONNX Runtime [ 2 -2  3 -3  1], by int8 [ 1 -1  2 -2  0]".
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

NUMBERS = np.array([1.7, -1.7, 2.5, -2.5, 0.6], np.float32)


def casts(*types):
    """A model that casts floats to each of the types in turn, and in the end to int32, which all runtimes return."""
    steps = [*types, TensorProto.INT32]
    names = ["x", *(f"v{index}" for index in range(len(types))), "y"]
    nodes = [helper.make_node("Cast", [names[i]], [names[i + 1]], to=kind) for i, kind in enumerate(steps)]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, NUMBERS.shape)
    result = helper.make_tensor_value_info("y", TensorProto.INT32, NUMBERS.shape)
    graph = helper.make_graph(nodes, "casts", [given], [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def by_onnx(model):
    return ReferenceEvaluator(model).run(None, {"x": NUMBERS})[0]


def by_onnx_runtime(model):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": NUMBERS})[0]


narrow, stepwise = casts(TensorProto.INT4), casts(TensorProto.INT8, TensorProto.INT4)
right, rounded, cut = by_onnx(narrow), by_onnx_runtime(narrow), by_onnx_runtime(stepwise)
print(f"int4: ONNX {right}, ONNX Runtime {rounded}, by int8 {cut}")
assert right.tolist() == cut.tolist() == [1, -1, 2, -2, 0]
assert rounded.tolist() == [2, -2, 3, -3, 1]
assert by_onnx_runtime(casts(TensorProto.INT8)).tolist() == right.tolist()
PYTHON
