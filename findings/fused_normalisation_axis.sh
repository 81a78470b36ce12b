#!/usr/bin/env bash
# The axis of a normalisation that onnxruntime.transformers.optimizer fuses.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: for each type of model the optimiser fuses means, squares and roots into LayerNormalization, which
# normalises the last axis, and does not look at the axes of the means: a normalisation over tokens or over the batch
# becomes one over features. Of the form without a mean it copies the axis into SimplifiedLayerNormalization, which
# takes all axes from there on, where the mean is over that one alone. The session's own fusion leaves both as they are.
# Output seen: "apart from the model: last axis 1e-06 and 1e-06, tokens 13 and 4.7 (fused LayerNormalization and
# SimplifiedLayerNormalization), by the session's own fusion 0 and 0".
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
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.transformers.optimizer import optimize_model

onnxruntime.set_default_logger_severity(3)
SHAPE = (2, 4, 8)
x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
constants = {
    "two": np.float32(2),
    "epsilon": np.float32(1e-5),
    "scale": np.arange(1, 9, dtype=np.float32),
    "bias": np.ones(8, np.float32),
}


def normalisation(axis, has_mean):
    centred = "centred" if has_mean else "x"
    nodes = []
    if has_mean:
        nodes += [
            helper.make_node("ReduceMean", ["x"], ["mean"], "mean", axes=[axis], keepdims=1),
            helper.make_node("Sub", ["x", "mean"], ["centred"], "centre"),
        ]
    nodes += [
        helper.make_node("Pow", [centred, "two"], ["square"], "square"),
        helper.make_node("ReduceMean", ["square"], ["variance"], "variance", axes=[axis], keepdims=1),
        helper.make_node("Add", ["variance", "epsilon"], ["guarded"], "guard"),
        helper.make_node("Sqrt", ["guarded"], ["root"], "root"),
        helper.make_node("Div", [centred, "root"], ["normal"], "divide"),
        helper.make_node("Mul", ["normal", "scale"], ["scaled" if has_mean else "y"], "scale"),
    ]
    if has_mean:
        nodes.append(helper.make_node("Add", ["scaled", "bias"], ["y"], "add"))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("x", "y")]
    kept = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], kept)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(name, optimises=False):
    options = onnxruntime.SessionOptions()
    if not optimises:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(name, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def compare(axis, has_mean):
    """The operators of the optimised model, how far it is from the model, and how far the session's own fusion is."""
    onnx.save(normalisation(axis, has_mean), "model.onnx")
    optimize_model("model.onnx", model_type="bert", opt_level=0).save_model_to_file("fused.onnx")
    right = run("model.onnx")
    apart = [float(np.abs(result - right).max()) for result in (run("fused.onnx"), run("model.onnx", optimises=True))]
    return [node.op_type for node in onnx.load("fused.onnx").graph.node], *apart


last = [compare(-1, has_mean) for has_mean in (True, False)]
tokens = [compare(1, has_mean) for has_mean in (True, False)]
(names, far, own), (simple_names, simple_far, simple_own) = tokens
print(
    f"apart from the model: last axis {last[0][1]:.0e} and {last[1][1]:.0e}, tokens {far:.2g} and {simple_far:.2g} "
    f"(fused {names[0]} and {simple_names[0]}), by the session's own fusion {own:.0g} and {simple_own:.0g}"
)
assert max(last[0][1], last[1][1]) < 1e-5 and own == simple_own == 0
assert names == ["LayerNormalization"] and simple_names == ["SimplifiedLayerNormalization"]
assert min(far, simple_far) > 1
PYTHON
