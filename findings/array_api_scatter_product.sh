#!/usr/bin/env bash
# onnx-array-api's extended reference replaces elements where ScatterElements multiplies them.
#
# Versions: onnx-array-api 0.3.3, onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: the package's ExtendedReferenceEvaluator is ONNX's reference with faster and further operators. Its own
# ScatterElements knows the reductions add, min and max; mul falls to the branch without a reduction, which replaces, and
# nothing is said. ONNX's own ReferenceEvaluator, from which it derives, and ONNX Runtime multiply.
# Output seen: "3 at place 1, multiplied by 5 and 7: onnx 105.0, ONNX Runtime 105.0, onnx-array-api 7.0; added: onnx 15.0,
# ONNX Runtime 15.0, onnx-array-api 15.0".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx-array-api==0.3.3 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from onnx_array_api.reference import ExtendedReferenceEvaluator

feeds = {
    "x": np.array([[2, 3, 4]], np.float32),
    "places": np.array([[1, 1]], np.int64),
    "updates": np.array([[5, 7]], np.float32),
}


def results(reduction):
    """The element at place 1 by onnx, by ONNX Runtime and by onnx-array-api."""
    node = helper.make_node("ScatterElements", list(feeds), ["y"], axis=1, reduction=reduction)
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in feeds.items()
    ]
    graph = helper.make_graph([node], "g", given, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    runs = (ReferenceEvaluator(model), session, ExtendedReferenceEvaluator(model))
    return [float(run.run(None, feeds)[0][0, 1]) for run in runs]


product, total = results("mul"), results("add")
print(
    "3 at place 1, multiplied by 5 and 7: onnx {}, ONNX Runtime {}, onnx-array-api {}; ".format(*product)
    + "added: onnx {}, ONNX Runtime {}, onnx-array-api {}".format(*total)
)
assert product == [105, 105, 7] and total == [15, 15, 15]
PYTHON
