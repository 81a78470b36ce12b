#!/usr/bin/env bash
# How far IREE's cosine and inverse hyperbolic sine are from their values.
#
# Versions: iree-base-compiler 3.13.0, iree-base-runtime 3.13.0, onnx 1.23.2, on x86-64.
# Behaviour: of an ONNX model, the cosine of 100,000 has two digits, and that of 3e9 is 1 where it is -0.16: quarter
# turns are subtracted by constants of single precision. Asinh of -10,000 is minus infinity where it is -9.9, as its
# formula squares the number and subtracts two near ones; of the positive number it is right. Nothing is said; float32
# holds all arguments and results.
# Output seen: "cosine of 1e5, 3e9: exact -0.99936, -0.16069, IREE -0.99922, 1.00000; Asinh of 1e4, -1e4: exact 9.9035,
# -9.9035, IREE 9.9035, -inf".
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


def both(operator, numbers):
    """The function's values in double precision, and IREE's."""
    x = np.array(numbers, np.float32)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"])], operator.lower(), values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (right,) = ReferenceEvaluator(model).run(None, {"x": x})
    exact = {"Cos": np.cos, "Asinh": np.arcsinh}[operator](x.astype(np.float64))
    np.testing.assert_allclose(right, exact, atol=1e-6)
    return exact, compiled(model, operator)(x).to_host()


(cosine, far), (inverse, lost) = both("Cos", [1e5, 3e9]), both("Asinh", [1e4, -1e4])
print(
    f"cosine of 1e5, 3e9: exact {cosine[0]:.5f}, {cosine[1]:.5f}, IREE {far[0]:.5f}, {far[1]:.5f}; "
    f"Asinh of 1e4, -1e4: exact {inverse[0]:.4f}, {inverse[1]:.4f}, IREE {lost[0]:.4f}, {lost[1]:.4f}"
)
assert 1e-4 < abs(far[0] - cosine[0]) < 1e-2 and far[1] == 1
assert abs(lost[0] - inverse[0]) < 1e-3 and lost[1] == -np.inf
PYTHON
