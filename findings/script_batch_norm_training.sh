#!/usr/bin/env bash
# onnxscript's optimiser fuses a batch normalisation that trains into the convolution before it.
#
# Versions: onnxscript 0.7.2, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: with training_mode=1, BatchNormalization (version 15) normalises by the mean and variance of the batch
# itself. onnxscript.optimizer.optimize folds Conv and BatchNormalization into one Conv by the stored statistics and
# does not look at the mode, so that the result is the one of inference. Without a convolution before it the node stays,
# and is right.
# Output seen: "mean and variance of channels: model 0.0 and 1.0, optimised 4.4 and 0.1; nodes ['Conv']; alone 0.0 and
# 1.0".
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
CHANNELS = 3
random = np.random.default_rng(0)
x = random.standard_normal((4, CHANNELS, 5, 5)).astype(np.float32)
constants = {
    "filters": np.eye(CHANNELS, dtype=np.float32).reshape(CHANNELS, CHANNELS, 1, 1),
    "scale": np.ones(CHANNELS, np.float32),
    "bias": np.zeros(CHANNELS, np.float32),
    "mean": np.full(CHANNELS, -14, np.float32),
    "variance": np.full(CHANNELS, 10, np.float32),
}


def model(has_convolution):
    read = "image" if has_convolution else "x"
    nodes = [helper.make_node("Conv", ["x", "filters"], ["image"])] if has_convolution else []
    inputs = [read, "scale", "bias", "mean", "variance"]
    nodes.append(helper.make_node("BatchNormalization", inputs, ["y", "new_mean", "new_variance"], training_mode=1))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in ("x", "y")]
    kept = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], kept)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def statistics(made):
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    y = session.run(None, {"x": x})[0]
    return round(abs(float(y.mean())), 1), round(float(y.var()), 1)


right = statistics(model(True))
fused = optimizer.optimize(model(True))
alone = statistics(optimizer.optimize(model(False)))
names, wrong = [node.op_type for node in fused.graph.node], statistics(fused)
print(
    f"mean and variance of channels: model {right[0]} and {right[1]}, optimised {wrong[0]} and {wrong[1]}; "
    f"nodes {names}; alone {alone[0]} and {alone[1]}"
)
assert right == alone == (0, 1)
assert names == ["Conv"] and wrong[0] > 3 and wrong[1] < 0.5
PYTHON
