#!/usr/bin/env bash
# qonnx takes the first result of a node for any of them when it drops an Identity.
#
# Versions: qonnx 1.0.0, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: RemoveIdentityOps drops Identity, and sums and products with nothing, by giving the node before the name of
# their result. It always names that node's first result, whichever one the Identity reads: of a Split whose second part
# alone is used, the model goes on with the first. Shapes agree, so that nothing is reported. Where the first part is
# read too, the model is right.
# Output seen: "second half of [0, 1, 2, 3] [2.0, 3.0], after RemoveIdentityOps [0.0, 1.0], Split's results ['kept',
# 'second']; with both halves read [2.0, 3.0]".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet qonnx==1.0.0 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from qonnx.core.modelwrapper import ModelWrapper
from qonnx.transformation.infer_shapes import InferShapes
from qonnx.transformation.remove import RemoveIdentityOps

x = np.arange(4, dtype=np.float32)


def halves(reads_both):
    """The second half before and after the pass, and the names of Split's results."""
    nodes = [
        helper.make_node("Split", ["x"], ["first", "second"], axis=0),
        helper.make_node("Identity", ["second"], ["kept"]),
        helper.make_node("Relu", ["kept"], ["y"]),
    ]
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [size]) for name, size in (("x", 4), ("y", 2))]
    if reads_both:
        nodes.append(helper.make_node("Relu", ["first"], ["z"]))
        declared.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [2]))
    graph = helper.make_graph(nodes, "g", declared[:1], declared[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    made = ModelWrapper(model).transform(InferShapes()).transform(RemoveIdentityOps()).model
    results = []
    for version in (model, made):
        session = onnxruntime.InferenceSession(version.SerializeToString(), providers=["CPUExecutionProvider"])
        results.append(session.run(["y"], {"x": x})[0].tolist())
    return *results, list(made.graph.node[0].output)


right, wrong, names = halves(False)
_, both, _ = halves(True)
print(
    f"second half of [0, 1, 2, 3] {right}, after RemoveIdentityOps {wrong}, Split's results {names}; with both halves "
    f"read {both}"
)
assert right == both == [2, 3]
assert wrong == [0, 1] and names == ["kept", "second"]
PYTHON
