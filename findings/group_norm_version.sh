#!/usr/bin/env bash
# ONNX's version converter raises GroupNormalization to a version whose operands have another size.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: in version 18, which is deprecated since, scale and bias have one number for each group, in version 21 one
# for each channel. convert_version from 18 to 21 changes the number of the opset alone, so that the node has too few
# numbers. ONNX's checker, with shapes inferred, accepts the converted model; ONNX Runtime and ONNX's reference, which
# ran it before, refuse it.
# Output seen: "2 groups of 4 channels: version 18 runs; converted to 21: scale of 2, checker accepts, ONNX Runtime
# refuses".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, checker, helper, version_converter

onnxruntime.set_default_logger_severity(4)
x = np.random.default_rng(0).standard_normal((1, 4, 3)).astype(np.float32)
node = helper.make_node("GroupNormalization", ["x", "scale", "bias"], ["y"], num_groups=2)
values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in ("x", "y")]
kept = [helper.make_tensor(name, TensorProto.FLOAT, [2], [1, 2]) for name in ("scale", "bias")]
graph = helper.make_graph([node], "g", values[:1], values[1:], kept)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def said(made):
    try:
        session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
        session.run(None, {"x": x})
    except onnxruntime.capi.onnxruntime_pybind11_state.Fail as error:
        assert "Incompatible dimensions" in str(error)
        return "refuses"
    return "runs"


converted = version_converter.convert_version(model, 21)
checker.check_model(converted, full_check=True)
before, after = said(model), said(converted)
size = converted.graph.initializer[0].dims[0]
print(
    f"2 groups of 4 channels: version 18 {before}; converted to 21: scale of {size}, checker accepts, "
    f"ONNX Runtime {after}"
)
assert (before, after, size) == ("runs", "refuses", 2)
PYTHON
