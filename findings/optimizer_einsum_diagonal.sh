#!/usr/bin/env bash
# onnxoptimizer takes the diagonal of a matrix in an Einsum for the whole matrix.
#
# Versions: onnxoptimizer 0.4.2, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: a letter that an operand has twice stands for its diagonal (Einsum, version 12; ONNX's own tests have
# "...ii->...i"). The pass replace_einsum_with_matmul looks whether the letters are those of a matrix product, and not
# whether they differ: rows scaled by a diagonal become a product with all of the matrix. ONNX Runtime and ONNX's
# reference follow the text.
# Output seen: "columns by a diagonal [[1, 8], [3, 16]], by the pass [[7, 10], [15, 22]]; rows by a diagonal [[1, 2],
# [12, 16]], by the pass [[7, 10], [15, 22]]; a product the same".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnxoptimizer==0.4.2 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxoptimizer
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

given = {name: np.array([[1, 2], [3, 4]], np.float32) for name in ("a", "b")}


def results(equation):
    """The result by ONNX Runtime, which is the reference's, and that of the model that the pass leaves."""
    node = helper.make_node("Einsum", ["a", "b"], ["y"], equation=equation)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2]) for name in ("a", "b", "y")]
    graph = helper.make_graph([node], "g", values[:2], values[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    changed = onnxoptimizer.optimize(model, ["replace_einsum_with_matmul"])
    found = []
    for candidate in (model, changed):
        session = onnxruntime.InferenceSession(candidate.SerializeToString(), providers=["CPUExecutionProvider"])
        found.append(session.run(None, given)[0].astype(int).tolist())
    assert ReferenceEvaluator(model).run(None, given)[0].tolist() == found[0]
    assert [node.op_type for node in changed.graph.node] == ["MatMul"]
    return found


columns, rows, product = results("ij,jj->ij"), results("ii,ij->ij"), results("ij,jk->ik")
print(
    f"columns by a diagonal {columns[0]}, by the pass {columns[1]}; rows by a diagonal {rows[0]}, by the pass "
    f"{rows[1]}; a product {'the same' if product[0] == product[1] else 'not the same'}"
)
assert columns == [[[1, 8], [3, 16]], [[7, 10], [15, 22]]]
assert rows == [[[1, 2], [12, 16]], [[7, 10], [15, 22]]]
assert product[0] == product[1]
PYTHON
