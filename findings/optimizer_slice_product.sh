#!/usr/bin/env bash
# onnxoptimizer cuts a product of matrices along another dimension than the model cuts its operand.
#
# Versions: onnxoptimizer 0.4.2, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: the pass adjust_slice_and_matmul multiplies first and cuts later where a constant table, as that of
# positions, is cut to a length and multiplied by constant weights. MatMul aligns the dimensions of its operands from
# the last (all versions), so that a table's rows are the second dimension of its product with one matrix for each head;
# the pass keeps the number of the axis, and cuts the heads. Counted from the end, and by a single matrix, it is right.
# Output seen: "2 of 3 positions by 2 heads: axis 0 [2, 2, 2], by the pass [2, 3, 2]; axis -2 [2, 2, 2] and [2, 2, 2];
# by a single matrix [2, 2] and [2, 2]".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnxoptimizer==0.4.2 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxoptimizer
import onnxruntime
from onnx import TensorProto, helper, numpy_helper


def shapes(axis, heads):
    """The shape of the product, and of that of the optimised model."""
    nodes = [
        helper.make_node("Slice", ["table", "start", "length", "axis"], ["rows"]),
        helper.make_node("MatMul", ["rows", "w"], ["y"]),
    ]
    kept = {"table": np.ones((3, 2), np.float32), "w": np.ones((*heads, 2, 2), np.float32)}
    kept |= {"start": np.array([0]), "axis": np.array([axis])}
    constants = [numpy_helper.from_array(array, name) for name, array in kept.items()]
    length = helper.make_tensor_value_info("length", TensorProto.INT64, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [*heads, "rows", 2])
    graph = helper.make_graph(nodes, "g", [length], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    changed = onnxoptimizer.optimize(model, ["adjust_slice_and_matmul"])
    assert changed.graph.node[-1].op_type == "Slice"
    found = []
    for candidate in (model, changed):
        session = onnxruntime.InferenceSession(candidate.SerializeToString(), providers=["CPUExecutionProvider"])
        found.append(list(session.run(None, {"length": np.array([2])})[0].shape))
    return found


first, last, single = shapes(0, (2,)), shapes(-2, (2,)), shapes(0, ())
print(
    f"2 of 3 positions by 2 heads: axis 0 {first[0]}, by the pass {first[1]}; axis -2 {last[0]} and {last[1]}; by a "
    f"single matrix {single[0]} and {single[1]}"
)
assert first == [[2, 2, 2], [2, 3, 2]]
assert last == [[2, 2, 2]] * 2 and single == [[2, 2]] * 2
PYTHON
