#!/usr/bin/env bash
# TVM resizes an ONNX model's images by the ratio of the sizes, and not by the scale that the model gives.
#
# Versions: apache-tvm 0.27.0.post1, onnx 1.23.2, numpy 2.4.6, on x86-64.
# Behaviour: where Resize is given scales (version 11 and later), its text computes places in the operand by the scale
# itself; the size of the result is rounded down. TVM's importer keeps the size alone and divides it by the operand's:
# of 5 columns by 1.5 there are 7, and places are counted by 7 / 5. Every column but the first is another number, in all
# modes; nothing is said. Where the product is whole both are the same.
# Output seen: "5 columns 0 to 40 by 1.5, linear: [0.0, 6.67, 13.33, 20.0, 26.67, 33.33, 40.0], TVM [0.0, 7.14, 14.29,
# 21.43, 28.57, 35.71, 40.0]; by 2 0e+00 apart".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet apache-tvm==0.27.0.post1 onnx==1.23.2 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import math

import numpy as np
import tvm
from onnx import TensorProto, helper, numpy_helper, shape_inference
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

x = np.arange(5, dtype=np.float32).reshape(1, 1, 1, 5) * 10


def by_tvm(scale):
    kept = [numpy_helper.from_array(np.array([1, 1, 1, scale], np.float32), "scales")]
    place = {"mode": "linear", "coordinate_transformation_mode": "asymmetric"}
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], **place)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [given], [result], kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    module = from_onnx(shape_inference.infer_shapes(model), keep_params_in_input=False)
    module = relax.transform.LegalizeOps()(relax.transform.DecomposeOpsForInference()(module))
    machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
    return machine["main"](tvm.runtime.tensor(x)).numpy().ravel()


def by_text(scale):
    """Linear interpolation at result / scale, the last pixel going on beyond the end."""
    columns = x.ravel()
    places = np.minimum(np.arange(math.floor(len(columns) * scale)) / scale, len(columns) - 1)
    return np.interp(places, np.arange(len(columns)), columns)


right, wrong = by_text(1.5), by_tvm(1.5)
same = float(np.abs(by_text(2) - by_tvm(2)).max())
print(
    f"5 columns 0 to 40 by 1.5, linear: {right.round(2).tolist()}, TVM {[round(float(v), 2) for v in wrong]}; by 2 "
    f"{same:.0e} apart"
)
assert same < 1e-4
assert right.shape == wrong.shape and np.allclose(wrong, np.minimum(np.arange(7) * 5 / 7, 4) * 10, atol=1e-3)
assert np.abs(right - wrong).max() > 1
PYTHON
