#!/usr/bin/env bash
# How many bins a short-time Fourier transform has whose node says nothing about it, by ONNX's inference and by runtimes.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: the schema of STFT says that onesided is 1 by default, so that frames of 16 samples have 9 bins.
# onnx.shape_inference counts 16 where the attribute is left out, and 9 where it is spelt out; ONNX Runtime and
# onnx.reference give 9 both ways. ONNX's own node test test_stft_with_window fails strict inference therefore, once its
# step is a constant. Pull request 7731 of onnx/onnx mends it, after this release.
# Output seen: "schema's default 1; inference 16, spelt out 9; ONNX Runtime 9, reference 9; node test: refused".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, checker, defs, helper, numpy_helper, shape_inference
from onnx.backend.test.case.node import collect_testcases
from onnx.reference import ReferenceEvaluator


def model(bins=None, **attributes):
    node = helper.make_node("STFT", ["x", "step", "window"], ["y"], **attributes)
    signal = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 128, 1])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, bins and [1, 15, bins, 2])
    step = numpy_helper.from_array(np.array(8, np.int64), "step")
    window = numpy_helper.from_array(np.ones(16, np.float32), "window")
    graph = helper.make_graph([node], "stft", [signal], [result], [step, window])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def inferred(model):
    return shape_inference.infer_shapes(model).graph.output[0].type.tensor_type.shape.dim[2].dim_value


samples = {"x": np.zeros((1, 128, 1), np.float32)}
session = onnxruntime.InferenceSession(model().SerializeToString(), providers=["CPUExecutionProvider"])
runtime = session.run(None, samples)[0].shape[2]
reference = ReferenceEvaluator(model(9)).run(None, samples)[0].shape[2]
default = defs.get_schema("STFT", 17).attributes["onesided"].default_value.i
(case,) = (case for case in collect_testcases("STFT") if case.name == "test_stft_with_window")
try:
    # The test feeds the step; inference needs it as a constant.
    case.model.graph.initializer.append(numpy_helper.from_array(np.array(8, np.int64), "frame_step"))
    shape_inference.infer_shapes(case.model, check_type=True, strict_mode=True)
    strict = "accepted"
except (shape_inference.InferenceError, checker.ValidationError):
    strict = "refused"
seen = (default, inferred(model()), inferred(model(onesided=1)), runtime, reference, strict)
print("schema's default {}; inference {}, spelt out {}; ONNX Runtime {}, reference {}; node test: {}".format(*seen))
assert seen == (1, 16, 9, 9, 9, "refused")
PYTHON
