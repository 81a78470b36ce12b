#!/usr/bin/env bash
# onnxconverter-common's optimiser takes every Pad for one of zeros, and normalises what a model cuts out.
#
# Versions: onnxconverter-common 1.16.0, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: optimize_onnx_model moves a Pad before a Conv into the Conv, whose pads are zeros, and looks neither at the
# mode nor at the value of the Pad: reflected borders, and borders of 9, become zeros. It also moves activations behind
# a Slice or a Reshape, to compute fewer elements, and counts Softmax among them, which then sums over what is left: the
# first two of four equal shares become halves. Nothing is said. Pads of zeros and other activations stay right.
# Output seen: "first of 3 x 3 sums of ones: pads of 0: 8, optimised 8; reflected 24, optimised 8; of 9: 53, optimised
# 8; two of four shares [0.25, 0.25], optimised [0.5, 0.5]; sigmoids the same".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnxconverter-common==1.16.0 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxconverter_common.optimizer import optimize_onnx_model


def results(x, middle, **constants):
    """The result of the middle nodes, between two that do nothing here, by the model and by the optimised one."""
    nodes = [helper.make_node("Relu", ["x"], ["begin"], name="begin"), *middle]
    nodes.append(helper.make_node("Relu", ["end"], ["y"], name="end"))
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    kept = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", [given], [result], kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    found = []
    for optimise in (lambda whole: whole, optimize_onnx_model):
        session = onnxruntime.InferenceSession(optimise(model).SerializeToString(), providers=["CPUExecutionProvider"])
        found.append(session.run(None, {"x": x})[0].ravel().tolist())
    return found


def padded(mode, value):
    """The first sum of 3 x 3 pixels, 0 to 8, with a border."""
    middle = [
        helper.make_node("Pad", ["begin", "pads", "value"], ["padded"], name="pad", mode=mode),
        helper.make_node("Conv", ["padded", "w"], ["end"], name="conv"),
    ]
    x, w = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3), np.ones((1, 1, 3, 3), np.float32)
    right, wrong = results(x, middle, pads=np.array([0, 0, 1, 1] * 2), value=np.float32(value), w=w)
    return int(right[0]), int(wrong[0])


def cut(activation):
    middle = [
        helper.make_node(activation, ["begin"], ["active"], name="activation"),
        helper.make_node("Slice", ["active", "starts", "ends", "axes"], ["end"], name="slice"),
    ]
    bounds = {"starts": [0], "ends": [2], "axes": [1]}
    return results(np.zeros((1, 4), np.float32), middle, **bounds)


zeros, reflected, nines = padded("constant", 0), padded("reflect", 0), padded("constant", 9)
shares, sigmoids = cut("Softmax"), cut("Sigmoid")
print(
    f"first of 3 x 3 sums of ones: pads of 0: {zeros[0]}, optimised {zeros[1]}; reflected {reflected[0]}, optimised "
    f"{reflected[1]}; of 9: {nines[0]}, optimised {nines[1]}; two of four shares {shares[0]}, optimised {shares[1]}; "
    f"sigmoids {'the same' if sigmoids[0] == sigmoids[1] else 'not the same'}"
)
assert zeros == (8, 8) and reflected == (24, 8) and nines == (53, 8)
assert shares == [[0.25, 0.25], [0.5, 0.5]] and sigmoids[0] == sigmoids[1]
PYTHON
