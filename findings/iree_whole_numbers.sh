#!/usr/bin/env bash
# IREE negates integers as floats, and computes remainders of floats from rounded products.
#
# Versions: iree-base-compiler 3.13.0, iree-base-runtime 3.13.0, onnx 1.23.2, on x86-64.
# Behaviour: Neg of integers (version 13) is exact for each number but the lowest. IREE converts to float32 and back:
# what that does not hold comes back as another number, and the largest of int32 as the lowest. Mod with fmod=1 (version
# 10 on) is C's fmod, which is exact too: IREE subtracts the product of divisor and rounded quotient, and gives NaN for
# an infinite divisor. ONNX's reference gives the exact results of both. Small numbers agree.
# Output seen: "-16777217 as int64: reference -16777217, IREE -16777216; -2147483647 as int32: -2147483647 and
# -2147483648; 1e8 and 5 by 3 and infinity: [1.0, 5.0], IREE [0.0, nan]; 7 by 3 the same".
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
from onnx import helper
from onnx.reference import ReferenceEvaluator

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


def results(operator, *operands, **attributes):
    """Those of a node by ONNX's reference and by IREE."""
    kind = helper.np_dtype_to_tensor_dtype(operands[0].dtype)
    names = ["x", "z"][: len(operands)]
    values = [helper.make_tensor_value_info(name, kind, operands[0].shape) for name in (*names, "y")]
    graph = helper.make_graph([helper.make_node(operator, names, ["y"], **attributes)], "g", values[:-1], values[-1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    right = ReferenceEvaluator(model).run(None, dict(zip(names, operands, strict=True)))[0]
    return right.tolist(), by_iree(model, *operands)[0].tolist()


long = results("Neg", np.array([16777217]))
short = results("Neg", np.array([2147483647], np.int32))
dividends, divisors = np.array([1e8, 5, 7], np.float32), np.array([3, np.inf, 3], np.float32)
(*right, one), (*found, same) = results("Mod", dividends, divisors, fmod=1)
print(
    f"-16777217 as int64: reference {long[0][0]}, IREE {long[1][0]}; -2147483647 as int32: {short[0][0]} and "
    f"{short[1][0]}; 1e8 and 5 by 3 and infinity: {right}, IREE {found}; 7 by 3 "
    f"{'the same' if one == same else 'not the same'}"
)
assert long == ([-16777217], [-16777216]) and short == ([-2147483647], [-2147483648])
assert right == [1, 5] and found[0] == 0 and np.isnan(found[1]) and one == same
PYTHON
