#!/usr/bin/env bash
# ONNX's reference casts to float8e8m0 otherwise than the table in Cast's text.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: the text of Cast (version 24) has a table for the type that holds powers of two alone: rounded up and
# saturated, infinity becomes the largest number; to the nearest and not saturated, 0 becomes NaN. onnx.reference gives
# NaN for the first and the smallest number for the second, and rounds that smallest number, which the type holds, up to
# its double. ONNX Runtime follows the table.
# Output seen: "infinity up: ONNX Runtime 2^127, reference NaN; 2^-127 up: 2^-127 and 2^-126; 0 to the nearest, not
# saturated: NaN and 2^-127; 3 up: 2^2 and 2^2".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import math

import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

SMALLEST, LARGEST = 2.0**-127, 2.0**127


def cast(number, **rounding):
    """The number in float8e8m0, by ONNX Runtime and by the reference."""
    x = {"x": np.array([number], np.float32)}
    nodes = [
        helper.make_node("Cast", ["x"], ["small"], to=TensorProto.FLOAT8E8M0, **rounding),
        helper.make_node("Cast", ["small"], ["y"], to=TensorProto.FLOAT),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [float(result[0]) for result in (session.run(None, x)[0], ReferenceEvaluator(model).run(None, x)[0])]


def named(numbers):
    names = ["NaN" if math.isnan(number) else f"2^{int(math.log2(number))}" for number in numbers]
    return names[0], names[1]


infinite, smallest, three = cast(math.inf, round_mode="up"), cast(SMALLEST, round_mode="up"), cast(3, round_mode="up")
zero = cast(0, round_mode="nearest", saturate=0)
one, other = named(infinite)
print(
    f"infinity up: ONNX Runtime {one}, reference {other}; 2^-127 up: {' and '.join(named(smallest))}; 0 to the "
    f"nearest, not saturated: {' and '.join(named(zero))}; 3 up: {' and '.join(named(three))}"
)
assert infinite[0] == LARGEST and math.isnan(infinite[1])
assert smallest == [SMALLEST, 2 * SMALLEST]
assert math.isnan(zero[0]) and zero[1] == SMALLEST
assert three == [4, 4]
PYTHON
