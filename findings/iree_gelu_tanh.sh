#!/usr/bin/env bash
# IREE's Gelu by a hyperbolic tangent has another constant than ONNX's.
#
# Versions: iree-base-compiler 3.13.0, iree-base-runtime 3.13.0, onnx 1.23.2, on x86-64.
# Behaviour: Gelu (version 20) with approximate="tanh" multiplies by the root of 2/pi, 0.797885. IREE's importer writes
# 0.797724 in its place, which stands in the module that it makes: results are off by up to 5e-5, hundreds of roundings
# of float32, as often as a network has such a layer. The same formula, written out in nodes, is right.
# Output seen: "constant in the module 0.797724, root of 2/pi 0.797885; largest difference from the formula, -4 to 4:
# 5e-05, written out 2e-07".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet iree-base-compiler==3.13.0 iree-base-runtime==3.13.0 onnx==1.23.2 numpy==2.4.6

cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import re
import subprocess
import sys
from pathlib import Path

import iree.runtime
import numpy as np
import onnx
from onnx import TensorProto, helper

TOOLS = Path(sys.executable).parent
FLAGS = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=generic",
)


def by_iree(model, *given):
    """The results of the compiled model."""
    onnx.save(model, "m.onnx")
    subprocess.run([TOOLS / "iree-import-onnx", "m.onnx", "-o", "m.mlir"], check=True)
    subprocess.run([TOOLS / "iree-compile", "m.mlir", *FLAGS, "-o", "m.vmfb"], check=True)
    results = iree.runtime.load_vm_flatbuffer_file("m.vmfb", driver="local-sync")[model.graph.name](*given)
    return [result.to_host() for result in (results if isinstance(results, tuple) else (results,))]


X = np.linspace(-4, 4, 81, dtype=np.float32)


def gelu(*nodes):
    """The result of the nodes for X, by IREE."""
    made = [helper.make_node(kind, inputs, outputs, **rest) for kind, inputs, outputs, rest in nodes]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, X.shape) for name in ("x", "y")]
    kept = {"half": 0.5, "one": 1.0, "small": 0.044715, "root": np.sqrt(2 / np.pi)}
    constants = [helper.make_tensor(name, TensorProto.FLOAT, [], [number]) for name, number in kept.items()]
    graph = helper.make_graph(made, "gelu", values[:1], values[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return by_iree(model, X)[0]


steps = ["Mul x x 2", "Mul 2 x 3", "Mul small 3 bent", "Add x bent inner", "Mul root inner angle", "Tanh angle slope"]
steps += ["Add one slope share", "Mul half x halved", "Mul halved share y"]
written = gelu(*((kind, inputs, [output], {}) for kind, *inputs, output in (step.split() for step in steps)))
node = gelu(("Gelu", ["x"], ["y"], {"approximate": "tanh"}))
command = [TOOLS / "iree-compile", "m.mlir", "--iree-input-type=onnx", "--compile-to=input", "-o", "-"]
module = subprocess.run(command, check=True, capture_output=True, text=True).stdout
(constant,) = {float(number) for number in re.findall(r"constant (\S+) : f32", module)} - {0.044715, 0.5, 1.0}
x = X.astype(np.float64)
right = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
apart, same = float(np.abs(node - right).max()), float(np.abs(written - right).max())
print(
    f"constant in the module {constant:.6f}, root of 2/pi {np.sqrt(2 / np.pi):.6f}; largest difference from the "
    f"formula, -4 to 4: {apart:.0e}, written out {same:.0e}"
)
assert constant == 0.797724
assert apart > 3e-5 and same < 2e-6
PYTHON
