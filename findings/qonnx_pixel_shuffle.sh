#!/usr/bin/env bash
# qonnx fuses DepthToSpace of either mode into a transposed convolution as if it had the other one.
#
# Versions: qonnx 1.0.0, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: SubPixelToDeconvolution makes one ConvTranspose of a Conv and the DepthToSpace that reads it. It does not
# read the mode: filters are ordered for CRD, while ONNX's default (since version 11, and the only order before) is DCR,
# whose images come out in another order of channels. A dilated Conv it announces to skip, and fuses all the same, so
# that the image has another size.
# Output seen: "apart from the model: CRD 2e-06, DCR 15; dilation of 2: 'Skipping sub-pixel conv, only supporting
# dilation=[1,1].', nodes ['ConvTranspose'], (1, 2, 11, 11) in place of (1, 2, 10, 10)".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet qonnx==1.0.0 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import warnings

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from qonnx.core.modelwrapper import ModelWrapper
from qonnx.transformation.infer_shapes import InferShapes
from qonnx.transformation.subpixel_to_deconv import SubPixelToDeconvolution

onnxruntime.set_default_logger_severity(3)
random = np.random.default_rng(0)
x = random.standard_normal((1, 4, 5, 5)).astype(np.float32)
filters = random.standard_normal((8, 4, 3, 3)).astype(np.float32)


def run(model):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def fused(mode, dilation=1):
    """The image of the model, that of the fused one, its nodes, and what the pass says."""
    sizes = {"kernel_shape": [3, 3], "strides": [1, 1], "group": 1}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[dilation] * 4, dilations=[dilation] * 2, **sizes),
        helper.make_node("DepthToSpace", ["c"], ["y"], blocksize=2, mode=mode),
    ]
    shapes = {"x": [1, 4, 5, 5], "y": [1, 2, 10, 10]}
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    graph = helper.make_graph(nodes, "g", declared[:1], declared[1:], [numpy_helper.from_array(filters, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        made = ModelWrapper(model).transform(InferShapes()).transform(SubPixelToDeconvolution()).model
    said = [str(warning.message) for warning in warned if "sub-pixel" in str(warning.message)]
    return run(model), run(made), [node.op_type for node in made.graph.node], said


(right, same, *_), (other, wrong, *_) = fused("CRD"), fused("DCR")
given, dilated, names, said = fused("CRD", 2)
close, far = (float(np.abs(one - two).max()) for one, two in ((right, same), (other, wrong)))
print(
    f"apart from the model: CRD {close:.0e}, DCR {far:.0f}; dilation of 2: '{said[0]}', nodes {names}, "
    f"{dilated.shape} in place of {given.shape}"
)
assert close < 1e-4 and far > 1
assert said[0].startswith("Skipping") and names == ["ConvTranspose"] and dilated.shape != given.shape
PYTHON
