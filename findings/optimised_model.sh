#!/usr/bin/env bash
# What onnxruntime.transformers.optimizer returns in memory, and what it saves.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: the ``model`` of what ``optimize_model`` returns has nodes of com.microsoft and imports no such operator
# set, so that ONNX's checker refuses it, and ONNX Runtime too; ``save_model_to_file`` adds the import first.
# Output seen: "fused: ['BiasGelu']; in memory: no import, refused; saved: imported, runs".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 sympy==1.14.0 coloredlogs==15.0.1

cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, checker, helper, numpy_helper
from onnxruntime.transformers.optimizer import optimize_model

random = np.random.default_rng(0)
constants = {
    "w": random.standard_normal((8, 8)).astype(np.float32),
    "b": random.standard_normal(8).astype(np.float32),
    "root": np.float32(np.sqrt(2)),
    "one": np.float32(1),
    "half": np.float32(0.5),
}
nodes = [
    helper.make_node("MatMul", ["x", "w"], ["product"], "product"),
    helper.make_node("Add", ["product", "b"], ["sum"], "sum"),
    helper.make_node("Div", ["sum", "root"], ["scaled"], "scaled"),
    helper.make_node("Erf", ["scaled"], ["erf"], "erf"),
    helper.make_node("Add", ["erf", "one"], ["shifted"], "shifted"),
    helper.make_node("Mul", ["sum", "shifted"], ["bent"], "bent"),
    helper.make_node("Mul", ["bent", "half"], ["y"], "halved"),
]
graph = helper.make_graph(
    nodes,
    "gelu",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4, 8])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4, 8])],
    [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "model.onnx")


def said(model):
    try:
        checker.check_model(model)
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    except (checker.ValidationError, onnxruntime.capi.onnxruntime_pybind11_state.Fail,
            onnxruntime.capi.onnxruntime_pybind11_state.InvalidGraph):
        return "refused"
    return "runs"


def imports(model):
    return "imported" if any(item.domain == "com.microsoft" for item in model.opset_import) else "no import"


optimised = optimize_model("model.onnx", model_type="bert", num_heads=2, hidden_size=8, opt_level=0)
in_memory = onnx.ModelProto.FromString(optimised.model.SerializeToString())
fused = sorted({node.op_type for node in in_memory.graph.node if node.domain == "com.microsoft"})
optimised.save_model_to_file("optimised.onnx")
saved = onnx.load("optimised.onnx")
print(f"fused: {fused}; in memory: {imports(in_memory)}, {said(in_memory)}; saved: {imports(saved)}, {said(saved)}")
assert fused
assert (imports(in_memory), said(in_memory)) == ("no import", "refused")
assert (imports(saved), said(saved)) == ("imported", "runs")
PYTHON
