#!/usr/bin/env bash
# OpenVINO leaves out three attributes of Resize, and says nothing.
#
# Versions: openvino 2026.4.1, onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: antialias, keep_aspect_ratio_policy and exclude_outside are read over: a linear reduction with antialias
# has the values of one without, a size that should keep the aspect ratio is taken by the letter (so the result has
# another shape), and a cubic kernel with exclude_outside weighs borders as one without. ONNX Runtime follows all
# three. The models load without a warning; preprocessing that was exported into a model gives other pixels.
# Output seen: "with and without: antialias 0.0 apart by OpenVINO, 0.53 by ONNX Runtime; shapes by not_larger (1, 1,
# 1, 3) and (1, 1, 1, 2); exclude_outside 0.0 and 0.15".
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



def resize(sizes=None, scales=None, shape=(1, 1, 4, 4), **attributes):
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, size) for name, size in (("x", shape), ("y", None)))
    if sizes:
        kept = [helper.make_tensor("to", TensorProto.INT64, [len(sizes)], sizes)]
        inputs = ["x", "", "", "to"]
    else:
        kept = [helper.make_tensor("to", TensorProto.FLOAT, [len(scales)], scales)]
        inputs = ["x", "", "to"]
    graph = helper.make_graph([helper.make_node("Resize", inputs, ["y"], **attributes)], "g", [x], [y], kept)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def apart(compute, attribute, **others):
    feeds = {"x": np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4)}
    one, other = (compute(resize(**others, **{attribute: value}), feeds)[0] for value in (0, 1))
    return round(float(np.abs(one - other).max()), 2)


def shape_by_policy(compute):
    model = resize(sizes=[1, 3], shape=(1, 1, 2, 4), axes=[2, 3], mode="nearest", keep_aspect_ratio_policy="not_larger")
    return compute(model, {"x": np.ones((1, 1, 2, 4), np.float32)})[0].shape


smooth = [apart(compute, "antialias", sizes=[1, 1, 3, 3], mode="linear") for compute in (by_openvino, by_onnx_runtime)]
shapes = [shape_by_policy(compute) for compute in (by_openvino, by_onnx_runtime)]
border = [apart(compute, "exclude_outside", scales=[1, 1, 2, 2], mode="cubic") for compute in (by_openvino, by_onnx_runtime)]
print(
    f"with and without: antialias {smooth[0]} apart by OpenVINO, {smooth[1]} by ONNX Runtime; shapes by not_larger "
    f"{shapes[0]} and {shapes[1]}; exclude_outside {border[0]} and {border[1]}"
)
assert smooth[0] == 0 and smooth[1] > 0.1
assert shapes == [(1, 1, 1, 3), (1, 1, 1, 2)]
assert border[0] == 0 and border[1] > 0.01
PYTHON
