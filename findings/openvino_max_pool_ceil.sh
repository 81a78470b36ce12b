#!/usr/bin/env bash
# OpenVINO's MaxPool by ceil_mode keeps windows that begin behind the input, and fills them with -3.4e38.
#
# Versions: openvino 2026.4.1, onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: A window that begins in the end padding is left out by ONNX's definition of ceil_mode (as by PyTorch), so
# a pool of size 2 and stride 3 of 6 numbers has 2 results. OpenVINO's AveragePool gives 2, its MaxPool 3, of which
# the last is the least float: it stands for no element, and layers behind it multiply it. ONNX Runtime gives 2 from
# both operators.
# Output seen: "results of 6 numbers: MaxPool 3 (last -3.4028234663852886e+38), AveragePool 2 by OpenVINO, 2 and 2 by
# ONNX Runtime".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet openvino==2026.4.1 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
import openvino
from onnx import TensorProto, helper


def by_openvino(model, feeds):
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    results = compiled(feeds)
    return [results[output] for output in compiled.outputs]


def by_onnx_runtime(model, feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)



def pool(operator):
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", [1, 1, 6]), ("y", None)))
    node = helper.make_node(operator, ["x"], ["y"], kernel_shape=[2], strides=[3], ceil_mode=1)
    graph = helper.make_graph([node], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


feeds = {"x": np.arange(1, 7, dtype=np.float32).reshape(1, 1, 6)}
largest, mean = (by_openvino(pool(operator), feeds)[0].ravel() for operator in ("MaxPool", "AveragePool"))
expected = [by_onnx_runtime(pool(operator), feeds)[0].ravel() for operator in ("MaxPool", "AveragePool")]
print(
    f"results of 6 numbers: MaxPool {largest.size} (last {largest[-1]}), AveragePool {mean.size} by OpenVINO, "
    f"{expected[0].size} and {expected[1].size} by ONNX Runtime"
)
assert largest.tolist()[:2] == expected[0].tolist() == [2.0, 5.0]
assert largest.size == 3 and largest[-1] == np.finfo(np.float32).min
assert mean.tolist() == expected[1].tolist() == [1.5, 4.5]
PYTHON
