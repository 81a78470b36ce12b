#!/usr/bin/env bash
# onnxscript's optimiser pads an integer convolution by its zero point where the model pads it by 0.
#
# Versions: onnxscript 0.7.2, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: ConvInteger (version 10) subtracts the zero point from its operand, so that the pads of its attribute stand
# for the real number 0. A Pad of codes puts the code 0 around the image, which stands for minus the zero point. A
# default rule of onnxscript.optimizer moves such a Pad into the ConvInteger without a look at the zero point, by which
# sums at the borders change. With a zero point of 0 it is right. ONNX Runtime computes both models as the text says.
# Output seen: "codes 128, 129 between two pads of 0: zero point 0 [0, 128, 129, 0], optimised [0, 128, 129, 0]; zero
# point 128 [-128, 0, 1, -128], optimised [0, 0, 1, 0]".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnxscript==0.7.2 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import onnxruntime
import onnxscript.optimizer
from onnx import TensorProto, helper, numpy_helper

given = {"x": np.array([[[[128, 129]]]], np.uint8)}


def sums(zero_point):
    """The sums of the model, and of the optimised one."""
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["padded"]),
        helper.make_node("ConvInteger", ["padded", "w", "zero_point"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 1, 1, 2])
    y = helper.make_tensor_value_info("y", TensorProto.INT32, [1, 1, 1, 4])
    kept = {"pads": np.array([0, 0, 0, 1, 0, 0, 0, 1]), "w": np.ones((1, 1, 1, 1), np.uint8)}
    kept["zero_point"] = np.array(zero_point, np.uint8)
    constants = [numpy_helper.from_array(array, name) for name, array in kept.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    found = []
    for candidate in (model, onnxscript.optimizer.optimize(model)):
        session = onnxruntime.InferenceSession(candidate.SerializeToString(), providers=["CPUExecutionProvider"])
        found.append(session.run(None, given)[0].ravel().tolist())
    return found


plain, middle = sums(0), sums(128)
print(
    f"codes 128, 129 between two pads of 0: zero point 0 {plain[0]}, optimised {plain[1]}; zero point 128 {middle[0]}, "
    f"optimised {middle[1]}"
)
assert plain == [[0, 128, 129, 0]] * 2
assert middle == [[-128, 0, 1, -128], [0, 0, 1, 0]]
PYTHON
