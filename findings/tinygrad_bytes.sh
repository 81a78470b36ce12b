#!/usr/bin/env bash
# tinygrad rounds unsigned bytes otherwise than signed ones, and finds other minima in them.
#
# Versions: tinygrad 0.14.0, onnx 1.23.2, numpy 2.4.6.
# Behaviour: QuantizeLinear rounds halves to the even number (all versions). tinygrad does so for int8, and for uint8
# adds a little less than a half to the quotient and drops the fraction, by which float32 often rounds halves up. ArgMin
# it computes as the ArgMax of the negated numbers: of unsigned types 0 stays 0, and is the largest by no means, so that
# the place is another. Nothing is said.
# Output seen: "0.5, 1.5, 2.5 with zero point 3: ONNX [3, 5, 5], tinygrad int8 [3, 5, 5], uint8 [4, 5, 6]; place of the
# least of 3, 0, 5: ONNX 1, tinygrad int32 1, uint8 0".
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
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tinygrad import Tensor
from tinygrad.nn.onnx import OnnxRunner


def both(operator, x, kind, constants=(), **attributes):
    """The result by ONNX's reference and by tinygrad."""
    kept = [numpy_helper.from_array(array, name) for name, array in constants]
    given = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    node = helper.make_node(operator, ["x", *(name for name, _ in constants)], ["y"], **attributes)
    graph = helper.make_graph([node], "g", [given], [helper.make_tensor_value_info("y", kind, None)], kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, "m.onnx")
    other = OnnxRunner("m.onnx")({"x": Tensor(x)})["y"].numpy()
    return [result.ravel().tolist() for result in (ReferenceEvaluator(model).run(None, {"x": x})[0], other)]


def rounded(dtype, kind):
    constants = [("scale", np.array(1, np.float32)), ("zero", np.array(3, dtype))]
    return both("QuantizeLinear", np.array([0.5, 1.5, 2.5], np.float32), kind, constants)


def least(dtype):
    return [place for (place,) in both("ArgMin", np.array([3, 0, 5], dtype), TensorProto.INT64, axis=0)]


signed, unsigned = rounded(np.int8, TensorProto.INT8), rounded(np.uint8, TensorProto.UINT8)
whole, byte = least(np.int32), least(np.uint8)
print(
    f"0.5, 1.5, 2.5 with zero point 3: ONNX {unsigned[0]}, tinygrad int8 {signed[1]}, uint8 {unsigned[1]}; place of "
    f"the least of 3, 0, 5: ONNX {byte[0]}, tinygrad int32 {whole[1]}, uint8 {byte[1]}"
)
assert unsigned[0] == signed[0] == signed[1] == [3, 5, 5] and unsigned[1] == [4, 5, 6]
assert byte[0] == whole[1] == 1 and byte[1] == 0
PYTHON
