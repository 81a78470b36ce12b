#!/usr/bin/env bash
# tinygrad gives the heads of grouped attention the wrong keys.
#
# Versions: tinygrad 0.14.0, onnx 1.23.2, numpy 2.4.6.
# Behaviour: where Attention (version 23) has fewer heads of keys and values than of queries, each of them serves as
# many query heads in a row. tinygrad repeats the heads as a whole, so that query heads 1 and 2 of four change theirs,
# with no error. It also adds the mask before it caps the scores, so that masked keys are only less likely. ONNX's
# reference follows the text, and without groups and caps the results agree.
# Output seen: "values of 4 query heads over 2 of keys: reference [1, 1, 2, 2], tinygrad [1, 2, 1, 2]; masked key with a
# cap of 2: reference 1.00, tinygrad 1.12; without a cap 1.00 and 1.00".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tinygrad==0.14.0 onnx==1.23.2 numpy==2.4.6

cd "$folder"
# The device that runs in Python needs no compiler.
DEV=PYTHON "$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from tinygrad import Tensor
from tinygrad.nn.onnx import OnnxRunner


def attention(heads, values, mask=None, **attributes):
    """The results by ONNX's reference and by tinygrad: all scores are equal, value heads are constant."""
    given = {"q": np.zeros((1, heads, 1, 2)), "k": np.zeros((1, len(values), 2, 2)), "v": np.array([values])[..., None]}
    if mask is not None:
        given["mask"] = np.array([mask])
    given = {name: array.astype(np.float32) for name, array in given.items()}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in given.items()]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, heads, 1, 1])
    graph = helper.make_graph([helper.make_node("Attention", [*given], ["y"], **attributes)], "g", inputs, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    onnx.save(model, "m.onnx")
    right = ReferenceEvaluator(model).run(None, given)[0]
    other = OnnxRunner("m.onnx")({name: Tensor(array) for name, array in given.items()})["y"].numpy()
    return right.ravel().tolist(), other.ravel().tolist()


groups = [[round(number) for number in numbers] for numbers in attention(4, [[1, 1], [2, 2]])]
masked = [0, -100]
capped, free = (attention(1, [[1, 2]], masked, **cap) for cap in ({"softcap": 2.0}, {}))
print(
    f"values of 4 query heads over 2 of keys: reference {groups[0]}, tinygrad {groups[1]}; masked key with a cap of 2: "
    f"reference {capped[0][0]:.2f}, tinygrad {capped[1][0]:.2f}; without a cap {free[0][0]:.2f} and {free[1][0]:.2f}"
)
assert groups == [[1, 1, 2, 2], [1, 2, 1, 2]]
assert free[0] == free[1] == [1] and capped[0] == [1] and capped[1][0] > 1.05
PYTHON
