#!/usr/bin/env bash
# onnxoptimizer, onnxsim and onnxconverter-common make one random node of two.
#
# Versions: onnxoptimizer 0.4.2, onnxsim 0.8.1, onnxconverter-common 1.16.0, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: a random node without a seed gets one of its own (RandomNormalLike and Bernoulli, all versions), so that
# two of them draw apart. The tools, by their default passes, take nodes of equal operator, operands and attributes for
# common subexpressions, and these too: both noises become the same, and what a model subtracts or compares is 0. ONNX
# Runtime's own optimisations, which are on by default, keep RandomNormalLike and merge Bernoulli.
# Output seen: "elements that are equal in two noises of 64: RandomNormalLike 0, by ONNX Runtime's optimisations 0,
# onnxoptimizer 64, onnxsim 64, onnxconverter-common 64; Bernoulli fewer than 64, by ONNX Runtime's optimisations 64,
# onnxoptimizer 64, onnxsim 64, onnxconverter-common 64".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnxoptimizer==0.4.2 onnxsim==0.8.1 onnxconverter-common==1.16.0 onnx==1.23.2 \
    onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import onnxoptimizer
import onnxruntime
import onnxsim
from onnx import TensorProto, helper
from onnxconverter_common.optimizer import optimize_onnx_model

COUNT = 64
TOOLS = {
    "onnxoptimizer": onnxoptimizer.optimize,
    "onnxsim": lambda model: onnxsim.simplify(model)[0],
    "onnxconverter-common": optimize_onnx_model,
}
PLAIN = onnxruntime.SessionOptions()
PLAIN.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def equal(model, options=PLAIN):
    """How many elements of the model's two noises are equal."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return int((session.run(None, {"x": np.full(COUNT, 0.5, np.float32)})[0] == 0).sum())


def counts(operator):
    """Those of the model, of its session with optimisations, and of the models that the tools make."""
    steps = [("Abs", ["x"], "r"), (operator, ["r"], "p"), (operator, ["r"], "q"), ("Sub", ["p", "q"], "d")]
    steps.append(("Identity", ["d"], "y"))
    nodes = [helper.make_node(kind, inputs, [result], name=f"make_{result}") for kind, inputs, result in steps]
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [COUNT]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", declared[:1], declared[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
    optimised = {"by ONNX Runtime's optimisations": equal(model, onnxruntime.SessionOptions())}
    return equal(model), optimised | {name: equal(tool(model)) for name, tool in TOOLS.items()}


def listed(optimised):
    return ", ".join(f"{name} {count}" for name, count in optimised.items())


(normal, normals), (coin, coins) = counts("RandomNormalLike"), counts("Bernoulli")
print(
    f"elements that are equal in two noises of {COUNT}: RandomNormalLike {normal}, {listed(normals)}; Bernoulli "
    f"{f'fewer than {COUNT}' if coin < COUNT else coin}, {listed(coins)}"
)
assert [normal, *normals.values()] == [0, 0, COUNT, COUNT, COUNT]
assert coin < COUNT and set(coins.values()) == {COUNT}
PYTHON
