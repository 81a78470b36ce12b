#!/usr/bin/env bash
# ONNX's reference takes logarithms of sums that it has rounded to nothing.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: the schema of LogSoftmax (version 13) has a function body, which subtracts the logarithm of the sum: of
# 1000 and -1000 it gives 0 and -2000. onnx.reference takes the logarithm of the rounded shares, and gives minus
# infinity for the second, as would a loss. ReduceLogSumExp of minus infinities alone, as of a masked row, is the
# logarithm of 0, and so is that of no number at all by its text (version 18): minus infinity. The reference gives NaN.
# ONNX Runtime agrees with the text in both.
# Output seen: "LogSoftmax of 1000, -1000: function body [0.0, -2000.0], ONNX Runtime [0.0, -2000.0], reference [0.0,
# -inf]; ReduceLogSumExp of -inf, -inf: ONNX Runtime -inf, reference nan; of 1000, 1000 both 1000.69".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import math

import numpy as np
import onnxruntime
from onnx import FunctionProto, TensorProto, defs, helper
from onnx.reference import ReferenceEvaluator


def results(operator, numbers, nodes=None):
    """Those of the operator, or of nodes from its operand to its result, by ONNX Runtime and ONNX's reference."""
    nodes = nodes or [helper.make_node(operator, ["input"], ["output"])]
    x = helper.make_tensor_value_info("input", TensorProto.FLOAT, [len(numbers)])
    y = helper.make_tensor_value_info("output", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    given = {"input": np.array(numbers, np.float32)}
    found = session.run(None, given)[0], ReferenceEvaluator(model).run(None, given)[0]
    return [result.ravel().tolist() for result in found]


def body():
    """The nodes of the schema's function, with the axis that it leaves to the node."""
    function = FunctionProto.FromString(defs.get_schema("LogSoftmax", 18).get_function_with_opset_version(18))
    for node in function.node:
        for attribute in node.attribute:
            if attribute.ref_attr_name == "axis":
                attribute.CopyFrom(helper.make_attribute(attribute.name, [-1] if node.op_type == "Constant" else -1))
    return list(function.node)


def logarithms(nodes=None):
    return results("LogSoftmax", [1000, -1000], nodes)


(runtime, reference), (written, _) = logarithms(), logarithms(body())
(masked,), (lost,) = results("ReduceLogSumExp", [-math.inf, -math.inf])
(large,), (same,) = results("ReduceLogSumExp", [1000, 1000])
print(
    f"LogSoftmax of 1000, -1000: function body {written}, ONNX Runtime {runtime}, reference {reference}; "
    f"ReduceLogSumExp of -inf, -inf: ONNX Runtime {masked}, reference {lost}; of 1000, 1000 both {same:.2f}"
)
assert written == runtime == [0, -2000] and reference == [0, -math.inf]
assert masked == -math.inf and math.isnan(lost) and abs(large - same) < 1e-3
PYTHON
