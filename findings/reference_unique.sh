#!/usr/bin/env bash
# ONNX's own reference sorts what Unique should leave in order, and keeps repeated columns.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: with sorted=0 Unique (version 11) gives unique elements in the order of their first occurrence.
# onnx.reference sorts them all the same if the node has no second output. With axis=1 and all outputs it takes rows by
# the numbers of columns, so that its result has the input's shape and its repeated columns, beside counts of the unique
# ones. ONNX Runtime gives what the text says.
# Output seen: "[3, 1, 3, 2] unsorted: one output [1, 2, 3] instead of [3, 1, 2], four outputs [3, 1, 2]; columns of
# [[3, 1, 3], [2, 2, 2]]: [[3, 1, 3], [2, 2, 2]] instead of [[3, 1], [2, 2]]".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

OUTPUTS = ("values", "indices", "inverse", "counts")


def unique(numbers, outputs, **attributes):
    """The unique values by ONNX's reference and by ONNX Runtime."""
    x = np.array(numbers, np.float32)
    results = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT if name == "values" else TensorProto.INT64, None)
        for name in outputs
    ]
    node = helper.make_node("Unique", ["x"], outputs, sorted=0, **attributes)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    graph = helper.make_graph([node], "g", [given], results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    computed = (ReferenceEvaluator(model).run(None, {"x": x})[0], session.run(None, {"x": x})[0])
    return [array.astype(int).tolist() for array in computed]


NUMBERS, COLUMNS = [3, 1, 3, 2], [[3, 1, 3], [2, 2, 2]]
one, right = unique(NUMBERS, OUTPUTS[:1])
four, _ = unique(NUMBERS, OUTPUTS)
columns, few = unique(COLUMNS, OUTPUTS, axis=1)
print(
    f"{NUMBERS} unsorted: one output {one} instead of {right}, four outputs {four}; "
    f"columns of {COLUMNS}: {columns} instead of {few}"
)
assert one == [1, 2, 3] and right == four == [3, 1, 2]
assert columns == COLUMNS and few == [[3, 1], [2, 2]]
PYTHON
