#!/usr/bin/env bash
# TVM leaves out IsInf's signs, and what composite reductions do where there is nothing to reduce.
#
# Versions: apache-tvm 0.27.0.post1, onnx 1.23.2, numpy 2.4.6, on x86-64.
# Behaviour: the attributes detect_negative and detect_positive of IsInf (version 10) say which infinity counts; TVM
# counts both. With noop_with_empty_axes and no axes, reductions reduce nothing, but ReduceL1 and ReduceL2 still give
# magnitudes and ReduceSumSquare squares, as the attribute's text in onnx 1.23 says with two such examples; TVM gives
# the operand back. Nothing is said. ONNX's reference follows the text.
# Output seen: "positive infinities among [inf, -inf]: [True, False], TVM [True, True]; of [-2, 3] without axes:
# ReduceL1 [2, 3], TVM [-2, 3]; ReduceL2 [2, 3], TVM [-2, 3]; ReduceSumSquare [4, 9], TVM [-2, 3]".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet apache-tvm==0.27.0.post1 onnx==1.23.2 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import tvm
from onnx import TensorProto, helper, shape_inference
from onnx.reference import ReferenceEvaluator
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx


def both(operator, x, kind, constants=(), **attributes):
    """The result by ONNX's reference and by TVM."""
    x = np.array(x, np.float32)
    node = helper.make_node(operator, ["x", *(tensor.name for tensor in constants)], ["y"], **attributes)
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)]
    values.append(helper.make_tensor_value_info("y", kind, x.shape))
    graph = helper.make_graph([node], "g", values[:1], values[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    module = from_onnx(shape_inference.infer_shapes(model), keep_params_in_input=False)
    module = relax.transform.LegalizeOps()(relax.transform.DecomposeOpsForInference()(module))
    machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
    other = machine["main"](tvm.runtime.tensor(x)).numpy()
    return ReferenceEvaluator(model).run(None, {"x": x})[0], other


results = both("IsInf", [np.inf, -np.inf], TensorProto.BOOL, detect_negative=0, detect_positive=1)
right, wrong = (result.tolist() for result in results)
axes = [helper.make_tensor("axes", TensorProto.INT64, [0], [])]
texts, pairs = [], []
for operator in ("ReduceL1", "ReduceL2", "ReduceSumSquare"):
    results = both(operator, [-2, 3], TensorProto.FLOAT, axes, noop_with_empty_axes=1)
    pairs.append([result.astype(int).tolist() for result in results])
    texts.append(f"{operator} {pairs[-1][0]}, TVM {pairs[-1][1]}")
print(f"positive infinities among [inf, -inf]: {right}, TVM {wrong}; of [-2, 3] without axes: {'; '.join(texts)}")
assert right == [True, False] and wrong == [True, True]
assert [first for first, _ in pairs] == [[2, 3], [2, 3], [4, 9]] and all(other == [-2, 3] for _, other in pairs)
PYTHON
