#!/usr/bin/env bash
# onnxscript's optimiser drops the data that a ScatterND adds to.
#
# Versions: onnxscript 0.7.2, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: ScatterND has a reduction since version 16, by which updates are added to the data, multiplied by it, or
# compared with it. A default rule of onnxscript.optimizer replaces a ScatterND whose constant indices are all rows in
# order by its updates, whatever the reduction: what was there is lost. Without a reduction that is right. Nothing is
# said.
# Output seen: "[1, 2] and [10, 20]: none [10, 20], optimised [10, 20]; add [11, 22], optimised [10, 20]; mul [10, 40],
# optimised [10, 20]; min [1, 2], optimised [10, 20]".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnxscript==0.7.2 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import onnxruntime
import onnxscript.optimizer
from onnx import TensorProto, helper, numpy_helper

given = {"data": np.array([1, 2], np.float32), "updates": np.array([10, 20], np.float32)}


def results(reduction):
    """The result of the model, and of the optimised one."""
    node = helper.make_node("ScatterND", ["data", "rows", "updates"], ["y"], reduction=reduction)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("data", "updates", "y")]
    rows = numpy_helper.from_array(np.array([[0], [1]]), "rows")
    graph = helper.make_graph([node], "g", values[:2], values[2:], [rows])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    found = []
    for candidate in (model, onnxscript.optimizer.optimize(model)):
        session = onnxruntime.InferenceSession(candidate.SerializeToString(), providers=["CPUExecutionProvider"])
        found.append(session.run(None, given)[0].astype(int).tolist())
    return found


found = {reduction: results(reduction) for reduction in ("none", "add", "mul", "min")}
print("[1, 2] and [10, 20]: " + "; ".join(f"{name} {right}, optimised {left}" for name, (right, left) in found.items()))
assert [right for right, _ in found.values()] == [[10, 20], [11, 22], [10, 40], [1, 2]]
assert [left for _, left in found.values()] == [[10, 20]] * 4
PYTHON
