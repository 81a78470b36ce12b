#!/usr/bin/env bash
# What the converters to float16 leave in float32.
#
# Versions: onnxconverter-common 1.16.0, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: since opset 12 a Constant may hold its number as value_float or value_floats, of float32 by definition. The
# converters of onnxconverter-common and of onnxruntime.transformers change tensors in attributes, and not those: what
# the node computes with becomes float16, the constant stays, and ONNX Runtime refuses the model. The same number as a
# tensor is converted. A Cast to float32 in the middle is another such type, which onnxconverter-common leaves and ONNX
# Runtime's converter changes.
# Output seen: "onnxconverter-common: tensor runs, value_float refused, Cast refused; onnxruntime.transformers: tensor
# runs, value_float refused, Cast runs".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnxconverter-common==1.16.0 onnx==1.23.2 onnxruntime==1.32.0 \
    numpy==2.4.6 packaging==26.4 sympy==1.14.0

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxconverter_common.float16
import onnxruntime
import onnxruntime.transformers.float16
from onnx import TensorProto, checker, helper, numpy_helper


def model(nodes):
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(made)
    return made


def multiplied(**number):
    nodes = [
        helper.make_node("Constant", [], ["factor"], "constant", **number),
        helper.make_node("Mul", ["x", "factor"], ["y"], "mul"),
    ]
    return model(nodes)


def cut():
    nodes = [
        helper.make_node("Cast", ["x"], ["whole"], "cut", to=TensorProto.INT64),
        helper.make_node("Cast", ["whole"], ["number"], "widen", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["number", "x"], ["y"], "mul"),
    ]
    return model(nodes)


def said(converter, made):
    converted = converter.convert_float_to_float16(made)
    try:
        session = onnxruntime.InferenceSession(converted.SerializeToString(), providers=["CPUExecutionProvider"])
    except onnxruntime.capi.onnxruntime_pybind11_state.Fail as error:
        assert "tensor(float16)" in str(error) and "tensor(float)" in str(error)
        return "refused"
    session.run(None, {"x": np.ones(2, np.float16)})
    return "runs"


def answers(converter):
    tensor = numpy_helper.from_array(np.float32(3), "three")
    return [said(converter, made) for made in (multiplied(value=tensor), multiplied(value_float=3.0), cut())]


common = answers(onnxconverter_common.float16)
runtime = answers(onnxruntime.transformers.float16)
for name, found in (("onnxconverter-common", common), ("onnxruntime.transformers", runtime)):
    print(f"{name}: tensor {found[0]}, value_float {found[1]}, Cast {found[2]}")
assert common == ["runs", "refused", "refused"]
assert runtime == ["runs", "refused", "runs"]
PYTHON
