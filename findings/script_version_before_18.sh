#!/usr/bin/env bash
# onnxscript's version converter writes newer versions on models that it cannot convert.
#
# Versions: onnxscript 0.7.2, onnx-ir 1.1.0, onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: The converter's own range begins with operator set 18, and without fallback an unsupported model is meant
# to stay as it is. A model of operator set 13 nevertheless comes back with operator set 24, its nodes unchanged:
# ReduceMean keeps its axes as an attribute (an input since 18), Split has neither sizes nor a count (needed since
# 18). Nothing is raised; ONNX Runtime refuses the result. With fallback=True the model is converted well.
# Output seen: "ReduceMean from 13 to 24: operator set 24, attributes ['axes', 'keepdims'], refused; with fallback it
# runs".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnxscript==0.7.2 onnx-ir==1.1.0 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import logging

import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnxscript import ir, version_converter

logging.disable(logging.WARNING)
node = helper.make_node("ReduceMean", ["x"], ["y"], axes=[1], keepdims=1)
x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", [2, 3]), ("y", [2, 1])))
graph = helper.make_graph([node], "g", [x], [y])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def convert(**options):
    changed = ir.serde.deserialize_model(model)
    version_converter.convert_version(changed, 24, **options)
    return ir.serde.serialize_model(changed)


def outcome(proto):
    try:
        session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception:
        return "refused"
    return session.run(None, {"x": np.ones((2, 3), np.float32)})[0].ravel().tolist()


alone, helped = convert(), convert(fallback=True)
version, attributes = alone.opset_import[0].version, sorted(a.name for a in alone.graph.node[0].attribute)
verdict, other = outcome(alone), outcome(helped)
print(
    f"ReduceMean from 13 to 24: operator set {version}, attributes {attributes}, {verdict}; "
    f"with fallback it {'runs' if other == [1.0, 1.0] else other}"
)
assert outcome(model) == other == [1.0, 1.0]
assert version == 24 and attributes == ["axes", "keepdims"] and verdict == "refused"
PYTHON
