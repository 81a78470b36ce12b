#!/usr/bin/env bash
# onnxscript's optimiser joins two limits of which the second is beside the first.
#
# Versions: onnxscript 0.7.2, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: Clip (version 13) takes the smaller of the upper limit and the larger of lower limit and number. Where a
# Clip is followed by another, or by Relu, with a lower limit above the first one's upper limit, each result is the
# second's lower limit. onnxscript.optimizer.optimize makes one Clip of both, with the larger of the lower and the
# smaller of the upper limits, which gives the first's upper limit.
# Output seen: "Clip to [-2, -1], then Relu: model [0, 0], optimised [-1, -1]; Clip to [-1, 0], then to [0.5, 2]: [0.5,
# 0.5] and [0, 0]".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnxscript==0.7.2 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxscript import optimizer

onnxruntime.set_default_logger_severity(3)
x = np.array([-5, 5], np.float32)


def results(limits, last, last_limits=()):
    """What two operators compute, before and after optimisation."""
    numbers = {f"limit{index}": np.float32(value) for index, value in enumerate((*limits, *last_limits))}
    names = list(numbers)
    nodes = [
        helper.make_node("Clip", ["x", *names[:2]], ["middle"]),
        helper.make_node(last, ["middle", *names[2:]], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in ("x", "y")]
    kept = [numpy_helper.from_array(np.asarray(number), name) for name, number in numbers.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return run(model), run(optimizer.optimize(model))


def run(model):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0].tolist()


def shown(numbers):
    return "[" + ", ".join(f"{number:g}" for number in numbers) + "]"


relu = results((-2, -1), "Relu")
clip = results((-1, 0), "Clip", (0.5, 2))
print(
    f"Clip to [-2, -1], then Relu: model {shown(relu[0])}, optimised {shown(relu[1])}; "
    f"Clip to [-1, 0], then to [0.5, 2]: {shown(clip[0])} and {shown(clip[1])}"
)
assert relu == ([0, 0], [-1, -1])
assert clip == ([0.5, 0.5], [0, 0])
PYTHON
