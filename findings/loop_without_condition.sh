#!/usr/bin/env bash
# How often a Loop with a trip count and no condition runs, by ONNX's text, ONNX's reference and ONNX Runtime.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: by the text of Loop (since opset 1), a loop without the second input runs as often as its trip count says,
# and what the body gives as its condition is ignored. ONNX Runtime ends such a loop where the body's condition is
# false; ONNX's own reference does not run it at all and returns what the loop began with. With a constant true as the
# second input both stop at the condition, as the text says. So the form of a plain for loop has three results.
# Output seen: "adding 1 ten times, condition below 3: without an input ONNX's text 10, ONNX Runtime 3, reference 0;
# with true 3 and 3".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, checker, defs, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

onnxruntime.set_default_logger_severity(3)


def value(name, kind, shape=()):
    return helper.make_tensor_value_info(name, kind, shape)


def loop(condition):
    constants = [numpy_helper.from_array(np.float32(number), name) for name, number in (("one", 1), ("limit", 3))]
    body = helper.make_graph(
        [helper.make_node("Add", ["state", "one"], ["next"]), helper.make_node("Less", ["next", "limit"], ["goes_on"])],
        "body",
        [value("step", TensorProto.INT64), value("went_on", TensorProto.BOOL), value("state", TensorProto.FLOAT)],
        [value("goes_on", TensorProto.BOOL), value("next", TensorProto.FLOAT)],
        constants,
    )
    kept = [numpy_helper.from_array(np.array(10), "trips"), numpy_helper.from_array(np.array(True), "true")]
    node = helper.make_node("Loop", ["trips", condition, "x"], ["y"], body=body)
    graph = helper.make_graph([node], "g", [value("x", TensorProto.FLOAT)], [value("y", TensorProto.FLOAT)], kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    checker.check_model(model)
    return model


def results(model):
    feeds = {"x": np.zeros((), np.float32)}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return float(session.run(None, feeds)[0]), float(ReferenceEvaluator(model).run(None, feeds)[0])


text = " ".join(defs.get_schema("Loop", 16).doc.split())
(runtime, reference), with_true = results(loop("")), results(loop("true"))
print(
    f"adding 1 ten times, condition below 3: without an input ONNX's text 10, ONNX Runtime {runtime:.0f}, "
    f"reference {reference:.0f}; with true {with_true[0]:.0f} and {with_true[1]:.0f}"
)
assert "i < trip_count; ++i) { cond = ...; // ignored }" in text
assert (runtime, reference) == (3, 0)
assert with_true == (3, 3)
PYTHON
