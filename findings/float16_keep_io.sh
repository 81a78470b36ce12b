#!/usr/bin/env bash
# What onnxconverter-common makes of keep_io_types where nodes have no names, or read an output.
#
# Versions: onnxconverter-common 1.16.0, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: convert_float_to_float16 with keep_io_types=True casts each input once for each node that reads it, and
# calls the casts and their results by the nodes' names, which ONNX leaves optional: without them two casts of an input
# have one name. An output that another node reads too is cast as if it were none, and that node's operand is float32.
# Either model is refused by ONNX Runtime; both are valid before, and onnxruntime.transformers.float16 converts them.
# Output seen: "named and apart: runs; without names: refused, two nodes x_cast_to_; output read: refused, float16 and
# float; by ONNX Runtime's converter: runs, runs, runs".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnxconverter-common==1.16.0 onnx==1.23.2 onnxruntime==1.32.0 \
    numpy==2.4.6 packaging==26.4 sympy==1.14.0

"$folder/venv/bin/python" - <<'PYTHON'
import onnxconverter_common.float16
import onnxruntime
import onnxruntime.transformers.float16
from onnx import TensorProto, checker, helper

CONVERTERS = (onnxconverter_common.float16, onnxruntime.transformers.float16)


def model(nodes, results):
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2]) for name in ("x", *results)]
    graph = helper.make_graph(nodes, "g", declared[:1], declared[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(made)
    return made


def pair(*names):
    """x + |x| in three nodes, with or without names."""
    steps = (("Relu", ["x"], ["a"]), ("Neg", ["x"], ["b"]), ("Add", ["a", "b"], ["y"]))
    return model([helper.make_node(*step, *name) for step, name in zip(steps, names, strict=True)], ["y"])


def said(converter, made):
    """Whether ONNX Runtime loads the converted model; else the end of its message."""
    converted = converter.convert_float_to_float16(made, keep_io_types=True)
    try:
        onnxruntime.InferenceSession(converted.SerializeToString(), providers=["CPUExecutionProvider"])
    except onnxruntime.capi.onnxruntime_pybind11_state.Fail as error:
        return str(error)
    return "runs"


READ = [helper.make_node("Relu", ["x"], ["y"], "relu"), helper.make_node("Neg", ["y"], ["z"], "neg")]


def models():
    return pair(["relu"], ["neg"], ["add"]), pair([], [], []), model(READ, ["y", "z"])


(plain, unnamed, read), other = ([said(converter, made) for made in models()] for converter in CONVERTERS)
kinds = ["refused, two nodes x_cast_to_" if "same node name (x_cast_to_)" in unnamed else unnamed]
kinds.append("refused, float16 and float" if "tensor(float16)" in read and "tensor(float)" in read else read)
print(
    f"named and apart: {plain}; without names: {kinds[0]}; output read: {kinds[1]}; "
    f"by ONNX Runtime's converter: {', '.join(other)}"
)
assert plain == "runs" and [kind.split(",")[0] for kind in kinds] == ["refused", "refused"]
assert other == ["runs", "runs", "runs"]
PYTHON
