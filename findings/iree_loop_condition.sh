#!/usr/bin/env bash
# IREE runs a Loop on after its body has ended it.
#
# Versions: iree-base-compiler 3.13.0, iree-base-runtime 3.13.0, onnx 1.23.2, on x86-64.
# Behaviour: A Loop of ONNX with a trip count and a condition ends at the first false condition that its body gives
# (since version 1). IREE's importer takes the condition that the loop begins with, and drops the one of the body
# without a word: the loop runs as often as its trip count says. Searches by halving and decoders that stop at an end so
# run to their limit, and give what comes after it.
# Output seen: "adding 1 up to ten times while below 3: ONNX 3, IREE 10".
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
from onnx import TensorProto, helper, numpy_helper
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


def constant(name, array):
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array))


def value(name, kind, shape=()):
    return helper.make_tensor_value_info(name, kind, shape)


body = helper.make_graph(
    [
        constant("one", np.ones(1, np.float32)),
        constant("limit", np.full(1, 3, np.float32)),
        helper.make_node("Add", ["state", "one"], ["next"]),
        helper.make_node("Less", ["next", "limit"], ["below"]),
        helper.make_node("Squeeze", ["below"], ["goes_on"]),
    ],
    "body",
    [value("step", TensorProto.INT64), value("went_on", TensorProto.BOOL), value("state", TensorProto.FLOAT, [1])],
    [value("goes_on", TensorProto.BOOL), value("next", TensorProto.FLOAT, [1])],
)
graph = helper.make_graph(
    [helper.make_node("Loop", ["trips", "true", "x"], ["y"], body=body)],
    "adding",
    [value("x", TensorProto.FLOAT, [1])],
    [value("y", TensorProto.FLOAT, [1])],
    [numpy_helper.from_array(np.array(10), "trips"), numpy_helper.from_array(np.array(True), "true")],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
x = np.zeros(1, np.float32)
right, far = ReferenceEvaluator(model).run(None, {"x": x})[0][0], compiled(model, "loop")(x).to_host()[0]
print(f"adding 1 up to ten times while below 3: ONNX {right:.0f}, IREE {far:.0f}")
assert (right, far) == (3, 10)
PYTHON
