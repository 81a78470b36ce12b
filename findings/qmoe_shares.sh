#!/usr/bin/env bash
# ONNX Runtime's QMoE divides the shares of the chosen experts by their sum, also where the model says not to.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: normalize_routing_weights of MoE and QMoE (com.microsoft) says whether the shares of the chosen experts,
# parts of a softmax over all of them, are divided by their sum; the default is not to. MoE does as it says. QMoE
# divides in either case, so that the same model with its weights in 8 bits has larger results.
# Output seen: "results of 2 of 4 equal experts: MoE 0.50, normalised 1.00; QMoE 1.00, normalised 1.00".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

EXPERTS, DEPTH = 4, 32


def result(operator, normalises):
    """The result of experts that all give ones, by equal routes."""
    given = {"x": np.ones((1, DEPTH), np.float32), "routes": np.zeros((1, EXPERTS), np.float32)}
    shape = (EXPERTS, DEPTH, DEPTH)
    if operator == "MoE":
        kept = {"w1": np.full(shape, 1 / DEPTH, np.float32)}
        names, attributes = [*given, "w1", "", "w1"], {}
    else:
        # A code of 129 stands for 1, and the scale divides by the depth.
        kept = {"w1": np.full(shape, 129, np.uint8), "s1": np.full(shape[:2], 1 / DEPTH, np.float32)}
        names, attributes = [*given, "w1", "s1", "", "w1", "s1"], {"expert_weight_bits": 8}
    attributes |= {"k": 2, "activation_type": "relu", "normalize_routing_weights": normalises}
    node = helper.make_node(operator, names, ["y"], domain="com.microsoft", **attributes)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in given.items()]
    declared = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, DEPTH])
    graph = helper.make_graph([node], "g", values, [declared], [numpy_helper.from_array(a, n) for n, a in kept.items()])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return float(session.run(None, given)[0].mean())


(plain, divided), (wrong, same) = ([result(operator, flag) for flag in (0, 1)] for operator in ("MoE", "QMoE"))
print(
    f"results of 2 of 4 equal experts: MoE {plain:.2f}, normalised {divided:.2f}; QMoE {wrong:.2f}, normalised "
    f"{same:.2f}"
)
assert abs(plain - 0.5) < 0.01 and abs(divided - 1) < 0.01
assert abs(wrong - 1) < 0.01 and abs(same - 1) < 0.01
PYTHON
