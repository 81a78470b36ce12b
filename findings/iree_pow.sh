#!/usr/bin/env bash
# IREE's Pow of negative numbers by exponents that are not constant.
#
# Versions: iree-base-compiler 3.13.0, iree-base-runtime 3.13.0, onnx 1.23.2, on x86-64.
# Behaviour: ONNX's Pow (version 15) is that of numpy, by which (-2)^2 is 4 and (-2)^3 is -8. Where the exponents are an
# input of the model, or computed, IREE multiplies by the logarithm of the base, which negative numbers do not have:
# results are NaN, and so is 0 to the power of 0. Constant exponents of one element are right.
# Output seen: "(-2)^2, (-2)^3, 0^0: ONNX [4, -8, 1], IREE by an input [nan, nan, nan]; (-2)^2 by a constant 4".
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


def power(bases, exponents, is_constant):
    """The powers by ONNX's reference and by IREE."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [len(bases)]) for name in ("x", "y")]
    declared, constants = values[:1], []
    if is_constant:
        constants = [helper.make_tensor("e", TensorProto.FLOAT, [], exponents)]
    else:
        declared = [*declared, helper.make_tensor_value_info("e", TensorProto.FLOAT, [len(exponents)])]
    name = "constant" if is_constant else "given"
    node = helper.make_node("Pow", ["x", "e"], ["y"])
    graph = helper.make_graph([node], name, declared, values[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x, e = np.array(bases, np.float32), np.array(exponents, np.float32)
    feeds = {"x": x} if is_constant else {"x": x, "e": e}
    (right,) = ReferenceEvaluator(model).run(None, feeds)
    return right, compiled(model, name)(*feeds.values()).to_host()


def shown(array):
    return "[" + ", ".join(f"{number:g}" for number in array) + "]"


right, given = power([-2, -2, 0], [2, 3, 0], is_constant=False)
square, kept = power([-2], [2], is_constant=True)
print(f"(-2)^2, (-2)^3, 0^0: ONNX {shown(right)}, IREE by an input {shown(given)}; (-2)^2 by a constant {kept[0]:g}")
assert right.tolist() == [4, -8, 1] and np.isnan(given).all()
assert square.tolist() == kept.tolist() == [4]
PYTHON
