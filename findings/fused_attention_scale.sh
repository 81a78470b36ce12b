#!/usr/bin/env bash
# The scale of attention that onnxruntime.transformers.optimizer fuses for BERT.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: the optimiser looks for products that are divided before their Softmax, and not by how much. It writes
# Attention of com.microsoft without a scale, which divides by the root of the heads' size. A model that divides by that
# size itself, by a temperature, or by 1, is fused all the same, and its attention becomes another.
# Output seen: "heads of 4, divided by 2: 2e-07 apart; by 4: 0.13 apart; by 1: 0.15 apart; scale of the fused node:
# none".
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

HEADS, HEAD, TOKENS = 2, 4, 3
WIDTH = HEADS * HEAD
random = np.random.default_rng(0)
x = random.standard_normal((1, TOKENS, WIDTH)).astype(np.float32)
constants = {
    "heads": np.array([0, 0, HEADS, HEAD]),
    "joined": np.array([0, 0, WIDTH]),
    "gain": np.ones(WIDTH, np.float32),
    "shift": np.zeros(WIDTH, np.float32),
}
for part in ("query", "key", "value", "out"):
    constants[f"{part}_weight"] = random.standard_normal((WIDTH, WIDTH)).astype(np.float32)
    constants[f"{part}_bias"] = random.standard_normal(WIDTH).astype(np.float32)


def projected(part, perm):
    return [
        helper.make_node("MatMul", ["root", f"{part}_weight"], [f"{part}_product"], f"{part}_product"),
        helper.make_node("Add", [f"{part}_bias", f"{part}_product"], [f"{part}_sum"], f"{part}_sum"),
        helper.make_node("Reshape", [f"{part}_sum", "heads"], [f"{part}_parts"], f"{part}_parts"),
        helper.make_node("Transpose", [f"{part}_parts"], [part], part, perm=perm),
    ]


def block(divisor):
    nodes = [
        helper.make_node("LayerNormalization", ["x", "gain", "shift"], ["root"], "first", axis=-1),
        *projected("query", [0, 2, 1, 3]),
        *projected("key", [0, 2, 3, 1]),
        *projected("value", [0, 2, 1, 3]),
        helper.make_node("MatMul", ["query", "key"], ["scores"], "scores"),
        helper.make_node("Div", ["scores", "divisor"], ["divided"], "divide"),
        helper.make_node("Softmax", ["divided"], ["shares"], "shares", axis=-1),
        helper.make_node("MatMul", ["shares", "value"], ["mixed"], "mixed"),
        helper.make_node("Transpose", ["mixed"], ["turned"], "turned", perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["turned", "joined"], ["rows"], "rows"),
        helper.make_node("MatMul", ["rows", "out_weight"], ["out_product"], "out_product"),
        helper.make_node("Add", ["out_bias", "out_product"], ["out"], "out"),
        helper.make_node("Add", ["out", "root"], ["sum"], "sum"),
        helper.make_node("LayerNormalization", ["sum", "gain", "shift"], ["y"], "last", axis=-1),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in ("x", "y")]
    kept = {**constants, "divisor": np.float32(divisor)}
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in kept.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(name):
    return onnxruntime.InferenceSession(name, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def compare(divisor):
    """How far the fused model is from the model, and the attributes of its attention."""
    onnx.save(block(divisor), "model.onnx")
    fused = optimize_model("model.onnx", model_type="bert", num_heads=HEADS, hidden_size=WIDTH, opt_level=0)
    fused.save_model_to_file("fused.onnx")
    (attention,) = [node for node in onnx.load("fused.onnx").graph.node if node.op_type == "Attention"]
    return float(np.abs(run("fused.onnx") - run("model.onnx")).max()), [item.name for item in attention.attribute]


(usual, _), (size, names), (one, _) = (compare(divisor) for divisor in (2, 4, 1))
scale = "some" if "scale" in names else "none"
print(
    f"heads of {HEAD}, divided by 2: {usual:.0e} apart; by 4: {size:.2g} apart; by 1: {one:.2g} apart; "
    f"scale of the fused node: {scale}"
)
assert usual < 1e-5 < 1e-2 < min(size, one)
assert scale == "none"
PYTHON
