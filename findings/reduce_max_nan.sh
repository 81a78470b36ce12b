#!/usr/bin/env bash
# Whether ONNX Runtime's ReduceMax and ReduceMin see a NaN depends on where it stands.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: the largest of numbers among which there is a NaN is NaN where the NaN is the first element, and the largest
# number wherever else it stands, for every length and along any axis. Max of two tensors gives NaN on either side,
# ReduceSum and ONNX's reference give NaN from every place. A masked maximum may so hide or show what a NaN upstream did
# with the order of the data alone, and ReduceMax of a tensor is not the Max of its parts.
# Output seen: "NaN seen at places [0] of 16 by ReduceMax and ReduceMin, at all 16 by ReduceSum and ONNX's reference".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

COUNT = 16


def model(operator, inputs, shape, **attributes):
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in inputs]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node(operator, inputs, ["y"], **attributes)], "g", values, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def by_onnx_runtime(built, feeds):
    session = onnxruntime.InferenceSession(built.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


def by_onnx(built, feeds):
    return ReferenceEvaluator(built).run(None, feeds)[0]


def with_nan(place):
    numbers = np.arange(COUNT, dtype=np.float32)
    numbers[place] = np.nan
    return numbers


def seen(operator, compute):
    """The places of a NaN from which the reduction of a vector is NaN."""
    built = model(operator, ["x"], [COUNT], keepdims=0)
    return [place for place in range(COUNT) if np.isnan(compute(built, {"x": with_nan(place)}))]


everywhere = list(range(COUNT))
largest, least = seen("ReduceMax", by_onnx_runtime), seen("ReduceMin", by_onnx_runtime)
sums, reference = seen("ReduceSum", by_onnx_runtime), seen("ReduceMax", by_onnx)
pair = model("Max", ["a", "b"], [COUNT])
one, other = with_nan(3), np.zeros(COUNT, np.float32)
print(f"NaN seen at places {largest} of {COUNT} by ReduceMax and ReduceMin, at all {len(sums)} by ReduceSum and ONNX's reference")
assert largest == least == [0]
assert sums == reference == everywhere
for feeds in ({"a": one, "b": other}, {"a": other, "b": one}):
    assert np.isnan(by_onnx_runtime(pair, feeds)[3])
PYTHON
