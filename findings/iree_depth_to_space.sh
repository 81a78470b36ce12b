#!/usr/bin/env bash
# IREE's importer orders the blocks of DepthToSpace in mode CRD otherwise than ONNX.
#
# Versions: iree-base-compiler 3.13.0, iree-base-runtime 3.13.0, onnx 1.23.2, on x86-64.
# Behaviour: ONNX (DepthToSpace since version 11) divides the depth into channels, rows and columns of blocks in the
# mode CRD, which is how pixel shuffling is exported. IREE compiles this mode without an error to another order of the
# elements: rows of blocks and columns of the image change places. The default mode, DCR, is right.
# Output seen: "2 x 2 blocks of 4 x 1 x 3 numbers, CRD: ONNX [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11], IREE [0, 1, 2, 3,
# 4, 5, 6, 7, 8, 9, 10, 11]; DCR the same".
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


def both(mode):
    """The elements of the result by ONNX's reference and by IREE."""
    node = helper.make_node("DepthToSpace", ["x"], ["y"], blocksize=2, mode=mode)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 1, 3])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 2, 6])
    graph = helper.make_graph([node], mode.lower(), [given], [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = np.arange(12, dtype=np.float32).reshape(1, 4, 1, 3)
    (right,) = ReferenceEvaluator(model).run(None, {"x": x})
    return [array.astype(int).ravel().tolist() for array in (right, compiled(model, mode)(x).to_host())]


right, other = both("CRD")
default, same = both("DCR")
told = "the same" if default == same else "another"
print(f"2 x 2 blocks of 4 x 1 x 3 numbers, CRD: ONNX {right}, IREE {other}; DCR {told}")
assert right == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]
assert other == list(range(12))
assert default == same
PYTHON
