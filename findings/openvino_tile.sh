#!/usr/bin/env bash
# OpenVINO fills the result of Tile with zeros where a tensor of four dimensions is repeated along all of them by an
# input.
#
# Versions: openvino 2026.4.1, onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: Tile of a tensor of one or two dimensions is right whether its repeats are a constant or an input of the
# model, and so is one of four dimensions by constant repeats. Where the repeats of a four-dimensional tensor are an
# input, the result has the right shape and holds nothing but zeros, with no error. ONNX's own example of Tile is such
# a model; ONNX Runtime gives the right numbers. Exports that repeat a mask or a position grid by a size that is known
# at run time only are so.
# Output seen: "right share of Tile by OpenVINO: two dimensions 1.0 and 1.0, four dimensions 1.0 by a constant and 0.0
# by an input; ONNX Runtime 1.0".
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



def tile(rank, fed):
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 4, 5][:rank])]
    repeats = helper.make_tensor("repeats", TensorProto.INT64, [rank], [2] * rank)
    if fed:
        values.append(helper.make_tensor_value_info("repeats", TensorProto.INT64, [rank]))
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 6, 8, 10][:rank])
    node = helper.make_node("Tile", ["x", "repeats"], ["y"])
    graph = helper.make_graph([node], "g", values, [result], [] if fed else [repeats])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def right_share(compute, rank, fed):
    x = np.random.default_rng(0).random([2, 3, 4, 5][:rank], dtype=np.float32) + 1
    feeds = {"x": x} | ({"repeats": np.full(rank, 2, np.int64)} if fed else {})
    return float(np.mean(compute(tile(rank, fed), feeds)[0] == np.tile(x, [2] * rank)))


flat = [right_share(by_openvino, 2, fed) for fed in (False, True)]
constant, given = (right_share(by_openvino, 4, fed) for fed in (False, True))
other = right_share(by_onnx_runtime, 4, True)
print(
    f"right share of Tile by OpenVINO: two dimensions {flat[0]} and {flat[1]}, four dimensions {constant} by a constant "
    f"and {given} by an input; ONNX Runtime {other}"
)
assert flat == [1.0, 1.0] and constant == 1.0 and given == 0.0 and other == 1.0
PYTHON
