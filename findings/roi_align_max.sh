#!/usr/bin/env bash
# ONNX Runtime and ONNX's reference take the largest weighted corner for the largest sample in RoiAlign's mode max.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: RoiAlign (since version 10) samples each bin by bilinear interpolation and pools the samples, by their
# average or the largest. In mode max both take the largest of a sample's four corners, each times its weight, in place
# of their sum: regions of an image of ones come out below one, by as much as the points lie between pixels. The
# average is right.
# Output seen: "regions of an image of ones: avg 1.0 and 1.0, max 0.75 and 0.75; other places 0.625 and 0.625".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

x = np.ones((1, 1, 6, 6), np.float32)


def largest(mode, begin, end):
    """The largest number of the regions by ONNX Runtime and ONNX's reference."""
    node = helper.make_node("RoiAlign", ["x", "rois", "batch"], ["y"], mode=mode, sampling_ratio=1, output_width=2)
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "y")]
    kept = {"rois": np.array([[begin, begin, end, end]], np.float32), "batch": np.array([0])}
    constants = [numpy_helper.from_array(array, name) for name, array in kept.items()]
    graph = helper.make_graph([node], "g", declared[:1], declared[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    results = session.run(None, {"x": x})[0], ReferenceEvaluator(model).run(None, {"x": x})[0]
    return [float(result.max()) for result in results]


average, between, others = largest("avg", 1, 4), largest("max", 1, 4), largest("max", 1.25, 3.75)
print(
    f"regions of an image of ones: avg {average[0]} and {average[1]}, max {between[0]} and {between[1]}; other "
    f"places {others[0]} and {others[1]}"
)
assert average == [1, 1]
assert between == [0.75, 0.75] and max(others) < 0.7
PYTHON
