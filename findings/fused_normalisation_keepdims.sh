#!/usr/bin/env bash
# ONNX Runtime and OpenVINO fuse means without their dimension into a layer normalisation.
#
# Versions: onnxruntime 1.32.0, openvino 2026.4.1, onnx 1.23.2, on x86-64.
# Behaviour: with keepdims=0 the means of a square matrix's rows are a vector, and what is subtracted from each element
# by ONNX's rules is the mean of the row whose number is that of its column. By default both runtimes take the pattern
# for a LayerNormalization and subtract each row's own mean. ONNX Runtime without optimisations follows the rules, and
# so does ONNX's reference. Known as issue 30513 of ONNX Runtime for a model that it then refuses.
# Output seen: "apart from ONNX's reference: ONNX Runtime without optimisations 1e-07, ONNX Runtime 1.2, OpenVINO 1.2;
# both from each other 2e-07".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet openvino==2026.4.1 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
import openvino
from onnx import TensorProto, checker, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

SIZE = 4
random = np.random.default_rng(0)
x = random.standard_normal((SIZE, SIZE)).astype(np.float32)
constants = {
    "two": np.float32(2),
    "epsilon": np.float32(1e-5),
    "scale": random.standard_normal(SIZE).astype(np.float32),
    "bias": random.standard_normal(SIZE).astype(np.float32),
}
nodes = [
    helper.make_node("ReduceMean", ["x"], ["mean"], axes=[-1], keepdims=0),
    helper.make_node("Sub", ["x", "mean"], ["centred"]),
    helper.make_node("Pow", ["centred", "two"], ["square"]),
    helper.make_node("ReduceMean", ["square"], ["variance"], axes=[-1], keepdims=0),
    helper.make_node("Add", ["variance", "epsilon"], ["guarded"]),
    helper.make_node("Sqrt", ["guarded"], ["root"]),
    helper.make_node("Div", ["centred", "root"], ["normal"]),
    helper.make_node("Mul", ["normal", "scale"], ["scaled"]),
    helper.make_node("Add", ["scaled", "bias"], ["y"]),
]
values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in ("x", "y")]
kept = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
graph = helper.make_graph(nodes, "g", values[:1], values[1:], kept)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
checker.check_model(model)


def by_onnx_runtime(level):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


(right,) = ReferenceEvaluator(model).run(None, {"x": x})
plain = by_onnx_runtime(onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
usual = by_onnx_runtime(onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL)
core = openvino.Core()
compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
other = compiled([x])[compiled.outputs[0]]
pairs = ((plain, right), (usual, right), (other, right), (usual, other))
apart = [float(np.abs(one - two).max()) for one, two in pairs]
print(
    f"apart from ONNX's reference: ONNX Runtime without optimisations {apart[0]:.0e}, ONNX Runtime {apart[1]:.2g}, "
    f"OpenVINO {apart[2]:.2g}; both from each other {apart[3]:.0e}"
)
assert apart[0] < 1e-5 and apart[3] < 1e-4
assert min(apart[1:3]) > 0.1
PYTHON
