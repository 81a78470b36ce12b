#!/usr/bin/env bash
# pnnx leaves out attributes of an ONNX model, and orders the channels of SpaceToDepth otherwise.
#
# Versions: pnnx 20261020, ncnn 1.0.20261020, onnx 1.23.2, numpy 2.4.6, on x86-64.
# Behaviour: pnnx converts for ncnn. Without a word it leaves out output_shape of ConvTranspose, so that images have
# columns more, alpha of Swish (version 24), and lambd and bias of Shrink, for which the defaults stand. SpaceToDepth
# becomes PyTorch's pixel_unshuffle, whose channels are grouped by those of the image, where ONNX's (version 13) are by
# places in a block. ONNX's reference follows the text.
# Output seen: "columns of a transposed convolution: inferred 8, ncnn 9; Swish of [-1, 1, 2] with alpha 2: [-0.12, 0.88,
# 1.96], ncnn [-0.27, 0.73, 1.76]; Shrink of [-1, 0.4, 2] by 0.3: [-0.9, 0.3, 1.9], ncnn [-1.0, 0.0, 2.0]; blocks of 0
# to 7: [0, 4, 1, 5, 2, 6, 3, 7], ncnn [0, 1, 2, 3, 4, 5, 6, 7]".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
# The converter is a program of its own; torch, which the package requires, is for its Python side.
"$folder/venv/bin/pip" install --quiet --no-deps pnnx==20261020
"$folder/venv/bin/pip" install --quiet ncnn==1.0.20261020 onnx==1.23.2 numpy==2.4.6

cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import importlib.util
import pathlib
import subprocess

import ncnn
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

PNNX = pathlib.Path(importlib.util.find_spec("pnnx").origin).with_name("pnnx")


def converted(operator, x, version, constants=(), **attributes):
    """The model, with shapes, and the result by ncnn."""
    kept = [numpy_helper.from_array(array, name) for name, array in constants]
    node = helper.make_node(operator, ["x", *(name for name, _ in constants)], ["y"], **attributes)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    graph = helper.make_graph([node], "g", [given], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)
    model = onnx.shape_inference.infer_shapes(model)
    onnx.save(model, "m.onnx")
    subprocess.run([PNNX, "m.onnx"], check=True, capture_output=True)
    net = ncnn.Net()
    assert net.load_param("m.ncnn.param") == 0 and net.load_model("m.ncnn.bin") == 0
    extractor = net.create_extractor()
    extractor.input("in0", ncnn.Mat(x[0]).clone())
    return model, np.array(extractor.extract("out0")[1])


def both(operator, x, version, digits, **attributes):
    """The result by ONNX's reference and by ncnn, rounded."""
    model, other = converted(operator, x, version, **attributes)
    results = ReferenceEvaluator(model).run(None, {"x": x})[0], other
    return [result.ravel().astype(float).round(digits).tolist() for result in results]


row = np.ones((1, 1, 1, 4), np.float32)
sizes = {"strides": [1, 2], "kernel_shape": [1, 3], "output_shape": [1, 8]}
model, wide = converted("ConvTranspose", row, 18, [("w", np.ones((1, 1, 1, 3), np.float32))], **sizes)
inferred = model.graph.output[0].type.tensor_type.shape.dim[-1].dim_value
swish = both("Swish", np.array([[-1, 1, 2]], np.float32), 24, 2, alpha=2.0)
shrink = both("Shrink", np.array([[-1, 0.4, 2]], np.float32), 18, 1, lambd=0.3, bias=0.1)
blocks = both("SpaceToDepth", np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2), 18, 0, blocksize=2)
blocks = [[int(number) for number in numbers] for numbers in blocks]
print(
    f"columns of a transposed convolution: inferred {inferred}, ncnn {wide.shape[-1]}; Swish of [-1, 1, 2] with alpha "
    f"2: {swish[0]}, ncnn {swish[1]}; Shrink of [-1, 0.4, 2] by 0.3: {shrink[0]}, ncnn {shrink[1]}; blocks of 0 to 7: "
    f"{blocks[0]}, ncnn {blocks[1]}"
)
assert (inferred, wide.shape[-1]) == (8, 9)
assert swish == [[-0.12, 0.88, 1.96], [-0.27, 0.73, 1.76]] and shrink == [[-0.9, 0.3, 1.9], [-1, 0, 2]]
assert blocks == [[0, 4, 1, 5, 2, 6, 3, 7], [0, 1, 2, 3, 4, 5, 6, 7]]
PYTHON
