#!/usr/bin/env bash
# The layout of NhwcConv's filters: what ONNX Runtime's schema says, and what its own optimiser writes.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: the schema of com.microsoft.NhwcConv describes the filter as (M x C/group x kH x kW); the optimiser for
# UNets writes it as [M, kH, kW, C/group]. A filter of 3 channels and 3x3 taps has one shape in both readings, so that
# who follows the text computes another convolution without an error. NhwcFusedConv, written by sessions, keeps
# [M, C/group, kH, kW], and its text says so.
# Output seen: "schema: (M x C/group x kH x kW); a filter of [4, 3, 5, 7] is stored as [4, 5, 7, 3]".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 sympy==1.14.0 coloredlogs==15.0.1

cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema
from onnxruntime.transformers.fusion_options import FusionOptions
from onnxruntime.transformers.optimizer import optimize_model

SHAPE = (4, 3, 5, 7)
filters = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
nodes = [
    helper.make_node("Conv", ["x", "w"], ["c"], "conv", kernel_shape=SHAPE[2:], pads=[2, 3, 2, 3]),
    helper.make_node("Relu", ["c"], ["y"], "relu"),
]
graph = helper.make_graph(
    nodes,
    "image",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 16, 16])],
    [numpy_helper.from_array(filters, "w")],
)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "model.onnx")

options = FusionOptions("unet")
options.enable_nhwc_conv = True
optimised = optimize_model("model.onnx", model_type="unet", opt_level=0, optimization_options=options, only_onnxruntime=False)
(conv,) = [node for node in optimised.model.graph.node if node.op_type == "NhwcConv"]
stored = numpy_helper.to_array(optimised.get_initializer(conv.input[1]))
(schema,) = [item for item in get_all_operator_schema() if item.name == "NhwcConv"]
text = schema.inputs[1].description
described = "(M x C/group x kH x kW)" if "(M x C/group x kH x kW)" in text else text
print(f"schema: {described}; a filter of {list(SHAPE)} is stored as {list(stored.shape)}")
assert described == "(M x C/group x kH x kW)"
assert stored.shape == (4, 5, 7, 3)
np.testing.assert_array_equal(stored, filters.transpose(0, 2, 3, 1))
PYTHON
