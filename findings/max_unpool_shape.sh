#!/usr/bin/env bash
# ONNX Runtime's MaxUnpool puts numbers elsewhere than ONNX's own test where a shape is given.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: MaxUnpool (version 11) takes indices as MaxPool gives them, and a shape, which chooses among the sizes that
# could have been pooled. ONNX's node test test_maxunpool_export_with_output_shape, and its reference, count the indices
# in the size without the shape, and add a row and a column of zeros. ONNX Runtime counts them in the given shape, so
# that the same numbers come to other rows and columns. Where the shape is the size without it both agree.
# Output seen: "places of 4 numbers in 5 x 5, of ONNX's test: expected [[1, 1], [1, 3], [3, 1], [3, 3]], ONNX Runtime
# [[1, 0], [1, 2], [2, 3], [3, 0]]; reference as expected; in 4 x 4 the same".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnx.backend.test.case.node import collect_testcases
from onnx.reference import ReferenceEvaluator

(case,) = (case for case in collect_testcases("MaxUnpool") if case.name == "test_maxunpool_export_with_output_shape")
((inputs, (expected,)),) = case.data_sets
given = {"x": inputs[0], "indices": inputs[1]}


def places(rows):
    """Where the numbers are in a result of so many rows and columns, by ONNX Runtime and ONNX's reference."""
    node = helper.make_node("MaxUnpool", ["x", "indices", "shape"], ["y"], kernel_shape=[2, 2], strides=[2, 2])
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, given["x"].shape)]
    values.append(helper.make_tensor_value_info("indices", TensorProto.INT64, given["indices"].shape))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    shape = helper.make_tensor("shape", TensorProto.INT64, [4], [1, 1, rows, rows])
    graph = helper.make_graph([node], "g", values, [y], [shape])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    results = session.run(None, given)[0], ReferenceEvaluator(model).run(None, given)[0]
    return [np.argwhere(result[0, 0]).tolist() for result in results]


wanted, (found, reference), (plain, same) = np.argwhere(expected[0, 0]).tolist(), places(5), places(4)
print(
    f"places of {len(wanted)} numbers in 5 x 5, of ONNX's test: expected {wanted}, ONNX Runtime {found}; reference "
    f"{'as expected' if reference == wanted else reference}; in 4 x 4 {'the same' if plain == same else 'not the same'}"
)
assert expected.shape == (1, 1, 5, 5) and wanted == reference == [[1, 1], [1, 3], [3, 1], [3, 3]]
assert found == [[1, 0], [1, 2], [2, 3], [3, 0]]
assert plain == same
PYTHON
