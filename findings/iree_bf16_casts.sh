#!/usr/bin/env bash
# IREE compiles ONNX's Cast from integers to bfloat16 for no common x86 CPU, nor by way of float32.
#
# Versions: iree-base-compiler 3.13.0, onnx 1.23.2, on x86-64.
# Behaviour: the conversion of an integer to bfloat16 becomes a call of a function of LLVM's library, which IREE does
# not link: the module is refused. CPUs of the levels x86-64-v3 and x86-64-v4 have no instruction for it. From float32 the
# same compiles, as IREE writes that rounding out. By way of float32 it compiles only where something stands between
# the two casts: alone they are folded into the one that does not link. Masks of tokens in bfloat16 are such casts.
# Output seen: "v3: int64 refused (__truncsfbf2), by way of float32 refused (__truncsfbf2), with a sum between them
# compiled, float32 compiled; v4: int64 refused (__truncsfbf2), by way of float32 refused (__truncsfbf2), with a sum
# between them compiled, float32 compiled".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet iree-base-compiler==3.13.0 onnx==1.23.2 numpy==2.4.6

cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import subprocess
import sys
from pathlib import Path

import onnx
from onnx import TensorProto, helper

TOOLS = Path(sys.executable).parent
FLAGS = ("--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu")
ONE = helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])


def cast(source, result, element):
    return helper.make_node("Cast", [source], [result], to=element)


CASES = {
    "int64": (TensorProto.INT64, [cast("x", "y", TensorProto.BFLOAT16)]),
    "by way of float32": (
        TensorProto.INT64,
        [cast("x", "w", TensorProto.FLOAT), cast("w", "y", TensorProto.BFLOAT16)],
    ),
    "with a sum between them": (
        TensorProto.INT64,
        [
            cast("x", "w", TensorProto.FLOAT),
            helper.make_node("Add", ["w", "one"], ["s"]),
            cast("s", "y", TensorProto.BFLOAT16),
        ],
    ),
    "float32": (TensorProto.FLOAT, [cast("x", "y", TensorProto.BFLOAT16)]),
}


def outcome(name, level):
    """Whether IREE compiles a case for a level of CPUs, or what it does not find."""
    element, nodes = CASES[name]
    given = helper.make_tensor_value_info("x", element, [2, 8])
    result = helper.make_tensor_value_info("y", TensorProto.BFLOAT16, [2, 8])
    graph = helper.make_graph(nodes, "casts", [given], [result], [ONE])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, "casts.onnx")
    subprocess.run([TOOLS / "iree-import-onnx", "casts.onnx", "-o", "casts.mlir"], check=True)
    command = [TOOLS / "iree-compile", "casts.mlir", *FLAGS, f"--iree-llvmcpu-target-cpu={level}", "-o", "casts.vmfb"]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode == 0:
        return f"{name} compiled"
    assert "undefined symbol: __truncsfbf2" in ran.stderr, ran.stderr
    return f"{name} refused (__truncsfbf2)"


told = {level: ", ".join(outcome(name, f"x86-64-{level}") for name in CASES) for level in ("v3", "v4")}
print("; ".join(f"{level}: {outcomes}" for level, outcomes in told.items()))
seen = (
    "int64 refused (__truncsfbf2), by way of float32 refused (__truncsfbf2), "
    "with a sum between them compiled, float32 compiled"
)
assert told == {"v3": seen, "v4": seen}
PYTHON
