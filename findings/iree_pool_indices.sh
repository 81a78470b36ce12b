#!/usr/bin/env bash
# IREE counts the places that MaxPool gives from each channel's first pixel.
#
# Versions: iree-base-compiler 3.13.0, iree-base-runtime 3.13.0, onnx 1.23.2, on x86-64.
# Behaviour: the second result of MaxPool (version 8 and later) has the places of the largest elements in the whole
# operand, flattened. IREE's importer gives the numbers of PyTorch's pooling, which begin anew in each channel of each
# image: where a network reads the flattened operand by them, all channels read the first one. Of one image with one
# channel both are the same. The values are right.
# Output seen: "places of 2 images of 2 channels of 2 pixels: [1, 3, 5, 7], IREE [1, 1, 1, 1]; values the same; of one
# channel [1] and [1]".
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


def pooled(images, channels):
    """The places of the largest elements by the text, and by IREE."""
    shape = [images, channels, 2]
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    node = helper.make_node("MaxPool", ["x"], ["y", "places"], kernel_shape=[2])
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [images, channels, 1])
    places = helper.make_tensor_value_info("places", TensorProto.INT64, [images, channels, 1])
    graph = helper.make_graph([node], "pool", [given], [y, places])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    values, found = by_iree(model, x)
    assert values.tolist() == x.max(axis=2, keepdims=True).tolist()
    return np.flatnonzero(np.isin(x, values)).tolist(), found.ravel().tolist()


(right, found), (one, same) = pooled(2, 2), pooled(1, 1)
print(
    f"places of 2 images of 2 channels of 2 pixels: {right}, IREE {found}; values the same; of one channel "
    f"{one} and {same}"
)
assert right == [1, 3, 5, 7] and found == [1, 1, 1, 1]
assert one == same == [1]
PYTHON
