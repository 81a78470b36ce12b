#!/usr/bin/env bash
# IREE computes with unsigned bytes of an ONNX model as with signed ones.
#
# Versions: iree-base-compiler 3.13.0, iree-base-runtime 3.13.0, onnx 1.23.2, on x86-64.
# Behaviour: Types of an imported model are unsigned, and so are results of comparisons and casts. But Div of uint8
# above 127 divides a negative number, TopK ranks such numbers last, and MatMulInteger without zero points multiplies
# negative ones. All three are ONNX's (since versions 14, 11 and 10), compile without a word, and are right where each
# number is below 128.
# Output seen: "200 / 7: ONNX 28, IREE 248; largest of 1, 200, 100: 200 and 100; 200 x 2 as integers: 400 and -112".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet iree-base-compiler==3.13.0 iree-base-runtime==3.13.0 onnx==1.23.2 numpy==2.4.6

cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import subprocess
import sys
from pathlib import Path

import iree.runtime
import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

TOOLS = Path(sys.executable).parent
FLAGS = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=generic",
)


def compiled(model, name, *flags):
    """The function of a model, compiled and loaded."""
    onnx.save(model, f"{name}.onnx")
    subprocess.run([TOOLS / "iree-import-onnx", f"{name}.onnx", "-o", f"{name}.mlir"], check=True)
    subprocess.run([TOOLS / "iree-compile", f"{name}.mlir", *FLAGS, *flags, "-o", f"{name}.vmfb"], check=True)
    return iree.runtime.load_vm_flatbuffer_file(f"{name}.vmfb", driver="local-sync")[model.graph.name]


def both(name, nodes, inputs, results, constants=()):
    """The first result by ONNX's reference and by IREE, as numbers of the type that the model declares."""
    declared = [
        helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for key, array in inputs.items()
    ]
    graph = helper.make_graph(nodes, name, declared, results, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    right = ReferenceEvaluator(model).run(None, inputs)[0]
    computed = compiled(model, name)(*inputs.values())
    first = computed[0] if isinstance(computed, tuple) else computed
    return [int(array.ravel()[0]) for array in (right, first.to_host().view(right.dtype))]


def value(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


bytes_ = {"x": np.array([200, 100], np.uint8), "b": np.array([7, 7], np.uint8)}
quotient = both("div", [helper.make_node("Div", ["x", "b"], ["y"])], bytes_, [value("y", TensorProto.UINT8, [2])])
ranked = both(
    "top",
    [helper.make_node("TopK", ["x", "k"], ["y", "i"])],
    {"x": np.array([1, 200, 100], np.uint8)},
    [value("y", TensorProto.UINT8, [1]), value("i", TensorProto.INT64, [1])],
    [helper.make_tensor("k", TensorProto.INT64, [1], [1])],
)
factors = {"x": np.full((4, 4), 200, np.uint8), "b": 2 * np.eye(4, dtype=np.uint8)}
product = both(
    "product",
    [helper.make_node("MatMulInteger", ["x", "b"], ["y"])],
    factors,
    [value("y", TensorProto.INT32, [4, 4])],
)
print(
    f"200 / 7: ONNX {quotient[0]}, IREE {quotient[1]}; largest of 1, 200, 100: {ranked[0]} and {ranked[1]}; "
    f"200 x 2 as integers: {product[0]} and {product[1]}"
)
assert quotient == [28, 248]
assert ranked == [200, 100]
assert product == [400, -112]
PYTHON
