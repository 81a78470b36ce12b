#!/usr/bin/env bash
# tract's causal Attention with keys of the past sees none, or not all, of them.
#
# Versions: tract 0.23.9, onnx 1.23.2, on x86-64.
# Behaviour: by ONNX's text (Attention, version 23) a causal query sees all keys of the past and those of the present up
# to its own place. tract counts places from the first key of the past, so that the first query of the present sees only
# the oldest key: a decoder's next token is computed without its context, with no error. Without a past, and with a past
# that is not causal, it is right.
# Output seen: "equal scores, values 0 to 3 of which 2 are past: ONNX's reference [1.0, 1.5], tract [0.0, 0.5]; not
# causal 1.5 and 1.5".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tract==0.23.9 onnx==1.23.2 numpy==2.4.6 ml-dtypes==0.6.0

cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import tract
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

PAST, NEW, SIZE = 2, 2, 1
FEEDS = {
    "query": np.ones((1, 1, NEW, SIZE), np.float32),
    "key": np.zeros((1, 1, NEW, SIZE), np.float32),
    "value": np.array([2, 3], np.float32).reshape(1, 1, NEW, SIZE),
    "past_key": np.zeros((1, 1, PAST, SIZE), np.float32),
    "past_value": np.array([0, 1], np.float32).reshape(1, 1, PAST, SIZE),
}


def results(is_causal):
    """The result of each query by ONNX's reference and by tract."""
    inputs = ["query", "key", "value", "", "past_key", "past_value"]
    node = helper.make_node("Attention", inputs, ["y", "present_key", "present_value"], is_causal=is_causal)
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in FEEDS.items()]
    shapes = {"y": NEW, "present_key": PAST + NEW, "present_value": PAST + NEW}
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 1, rows, SIZE]) for name, rows in shapes.items()]
    graph = helper.make_graph([node], "g", declared, made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    onnx.save(model, "model.onnx")
    right = ReferenceEvaluator(model).run(None, FEEDS)[0]
    other = tract.onnx().load("model.onnx").into_model().into_runnable().run(list(FEEDS.values()))[0].to_numpy()
    return [array.ravel().round(4).tolist() for array in (right, other)]


right, wrong = results(1)
open_, same = results(0)
print(
    f"equal scores, values 0 to 3 of which 2 are past: ONNX's reference {right}, tract {wrong}; "
    f"not causal {open_[0]} and {same[0]}"
)
assert right == [1.0, 1.5] and wrong == [0.0, 0.5]
assert open_ == same == [1.5, 1.5]
PYTHON
