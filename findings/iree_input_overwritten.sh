#!/usr/bin/env bash
# A module that IREE compiled from an ONNX model writes into its caller's input.
#
# Versions: iree-base-compiler 3.13.0, iree-base-runtime 3.13.0, onnx 1.23.2, on x86-64.
# Behaviour: TopK sorts its input in place where nothing in the model reads that input later, and the buffer is the one
# that the caller gave: after the call it has other elements, sorted, and a second call on the same buffer gives other
# indices, with no error. Nothing in the module's signature says so. Known for other operators as issue 16168 of IREE;
# ONNX's values are never changed by a node.
# Output seen: "indices of the two largest of [1, 4, 2, 3]: first call [1, 3], second call [0, 1]; the input is then [4,
# 3, 2, 1]".
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


node = helper.make_node("TopK", ["x", "k"], ["values", "indices"])
graph = helper.make_graph(
    [node],
    "largest",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
    [
        helper.make_tensor_value_info("values", TensorProto.FLOAT, [2]),
        helper.make_tensor_value_info("indices", TensorProto.INT64, [2]),
    ],
    [helper.make_tensor("k", TensorProto.INT64, [1], [2])],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
x = np.array([1, 4, 2, 3], np.float32)
_, right = ReferenceEvaluator(model).run(None, {"x": x})
function = compiled(model, "largest")
given = iree.runtime.asdevicearray(iree.runtime.get_device("local-sync"), x)
first, second = (function(given)[1].to_host().tolist() for _ in range(2))
after = given.to_host().astype(int).tolist()
print(
    f"indices of the two largest of [1, 4, 2, 3]: first call {first}, second call {second}; the input is then {after}"
)
assert first == right.tolist() == [1, 3]
assert second == [0, 1] and after == [4, 3, 2, 1]
PYTHON
