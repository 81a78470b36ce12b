#!/usr/bin/env bash
# OpenVINO leaves out the peepholes of an LSTM.
#
# Versions: openvino 2026.4.1, onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: the eighth input of LSTM (versions 1 to 22) has weights by which the cell's state reaches the gates.
# OpenVINO reads a model that has it without a warning, and computes the LSTM without: its results are exactly those of
# the model whose eighth input is missing. ONNX Runtime and ONNX's reference use it.
# Output seen: "with peepholes: reference and ONNX Runtime 6e-08 apart, OpenVINO 0.51 apart; OpenVINO with and without
# 0.0 apart".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet openvino==2026.4.1 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
import openvino
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

STEPS, BATCH, WIDTH, HIDDEN = 3, 2, 2, 2
random = np.random.default_rng(0)
x = random.standard_normal((STEPS, BATCH, WIDTH)).astype(np.float32)
SHAPES = {"w": (1, 4 * HIDDEN, WIDTH), "r": (1, 4 * HIDDEN, HIDDEN), "b": (1, 8 * HIDDEN), "p": (1, 3 * HIDDEN)}
constants = {name: random.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


def by_openvino(model, x):
    core = openvino.Core()
    options = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", options)
    return compiled([x])[compiled.outputs[0]]


def by_onnx_runtime(model, x):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def model(has_peepholes):
    inputs = ["x", "w", "r", "b", *(("", "", "", "p") if has_peepholes else ())]
    node = helper.make_node("LSTM", inputs, ["y"], hidden_size=HIDDEN)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [STEPS, 1, BATCH, HIDDEN])
    kept = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "g", [given], [result], kept)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=7)


(right,) = ReferenceEvaluator(model(True)).run(None, {"x": x})
runtime, other, without = by_onnx_runtime(model(True), x), by_openvino(model(True), x), by_openvino(model(False), x)
near, far, same = (float(np.abs(one - two).max()) for one, two in ((runtime, right), (other, right), (other, without)))
print(
    f"with peepholes: reference and ONNX Runtime {near:.0e} apart, OpenVINO {far:.2g} apart; "
    f"OpenVINO with and without {same} apart"
)
assert near < 1e-5 and same == 0
assert far > 0.02
PYTHON
