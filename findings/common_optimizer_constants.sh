#!/usr/bin/env bash
# onnxconverter-common's optimiser folds constants by numpy's rules, not by ONNX's.
#
# Versions: onnxconverter-common 1.16.0, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: optimize_onnx_model computes what depends on constants alone. Div of integers, which drops the fraction
# (version 14), it gives as a float with its fraction; Gather without an axis, which is 0 then (all versions), takes
# from the flattened table; Slice along axis -1 (version 10 on) cuts nothing. Each model is valid, and runs afterwards,
# to other numbers. ONNX Runtime, which folds the same constants by default, gives those of the text. Along an axis that
# is given and counted from the front both agree.
# Output seen: "7 / 2 as a float: 3.0, optimised 3.5; row 1 of [[1, 2], [3, 4]]: [3, 4], optimised [2, 2]; its last
# column [2, 4], optimised [1, 2, 3, 4]; by axis 0 and 1 the same".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnxconverter-common==1.16.0 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxconverter_common.optimizer import optimize_onnx_model

TABLE = np.array([[1, 2], [3, 4]], np.float32)


def results(shape, nodes, **constants):
    """Zeros and the constant that the nodes compute, by the model and by the optimised one."""
    nodes.append(helper.make_node("Add", ["x", "constant"], ["y"], name="add"))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    kept = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    found = []
    for optimise in (lambda whole: whole, optimize_onnx_model):
        session = onnxruntime.InferenceSession(optimise(model).SerializeToString(), providers=["CPUExecutionProvider"])
        found.append(session.run(None, {"x": np.zeros(shape, np.float32)})[0].ravel().tolist())
    return found


def row(**axis):
    nodes = [helper.make_node("Gather", ["table", "index"], ["constant"], name="gather", **axis)]
    return results([1, 2], nodes, table=TABLE, index=[1])


def column(axis):
    nodes = [helper.make_node("Slice", ["table", "start", "end", "axis"], ["constant"], name="slice")]
    return results([2, 1], nodes, table=TABLE, start=[1], end=[2], axis=[axis])


def whole(numbers):
    return [int(number) for number in numbers]


division = [helper.make_node("Div", ["a", "b"], ["quotient"], name="div")]
division.append(helper.make_node("Cast", ["quotient"], ["constant"], name="cast", to=TensorProto.FLOAT))
quotient, rows, columns = results([1], division, a=[7], b=[2]), row(), column(-1)
counted = (row(axis=0), column(1))
print(
    f"7 / 2 as a float: {quotient[0][0]}, optimised {quotient[1][0]}; row 1 of {TABLE.astype(int).tolist()}: "
    f"{whole(rows[0])}, optimised {whole(rows[1])}; its last column {whole(columns[0])}, optimised {whole(columns[1])}"
    f"; by axis 0 and 1 {'the same' if all(right == found for right, found in counted) else 'not the same'}"
)
assert quotient == [[3.0], [3.5]]
assert rows == [[3, 4], [2, 2]] and columns == [[2, 4], [1, 2, 3, 4]]
assert all(right == found for right, found in counted)
PYTHON
