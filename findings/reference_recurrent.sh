#!/usr/bin/env bash
# ONNX's own reference leaves out attributes and an input of LSTM, GRU and RNN.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: onnx.reference computes the cells of GRU and LSTM with Sigmoid and Tanh whatever activations say, never
# clips, and goes on behind the end of a sequence that is shorter than its batch (sequence_lens), all without a word.
# The text of the operators (version 22, and those before) defines all three; ONNX Runtime follows it. A tool that is
# tested against the reference learns the wrong cells.
# Output seen: "largest difference from ONNX Runtime: plain LSTM 4e-08, GRU 7e-08; activations 0.33, 4.6; clip 0.48,
# 0.93; lengths 0.46, 0.84".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, checker, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

onnxruntime.set_default_logger_severity(3)
STEPS, BATCH, WIDTH, HIDDEN = 4, 2, 3, 2
GATES = {"LSTM": 4, "GRU": 3}
ACTIVATIONS = {"LSTM": ["HardSigmoid", "Relu", "Relu"], "GRU": ["HardSigmoid", "Relu"]}
random = np.random.default_rng(0)
x = random.standard_normal((STEPS, BATCH, WIDTH)).astype(np.float32)


def difference(operator, lengths=None, **attributes):
    """How far the reference's hidden states are from ONNX Runtime's."""
    rows = GATES[operator] * HIDDEN
    constants = {
        "w": random.standard_normal((1, rows, WIDTH)).astype(np.float32),
        "r": random.standard_normal((1, rows, HIDDEN)).astype(np.float32),
    }
    inputs = ["x", "w", "r"]
    if lengths is not None:
        constants["lengths"] = np.array(lengths, np.int32)
        inputs += ["", "lengths"]
    node = helper.make_node(operator, inputs, ["y"], hidden_size=HIDDEN, **attributes)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [STEPS, 1, BATCH, HIDDEN])
    kept = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "g", [given], [result], kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    one, other = session.run(None, {"x": x})[0], ReferenceEvaluator(model).run(None, {"x": x})[0]
    return float(np.abs(one - other).max())


plain = [difference(operator) for operator in GATES]
bent = [difference(operator, activations=ACTIVATIONS[operator]) for operator in GATES]
clipped = [difference(operator, clip=0.1) for operator in GATES]
short = [difference(operator, lengths=[2, 4]) for operator in GATES]
print(
    f"largest difference from ONNX Runtime: plain LSTM {plain[0]:.0e}, GRU {plain[1]:.0e}; "
    + "; ".join(
        f"{name} {pair[0]:.2g}, {pair[1]:.2g}"
        for name, pair in (("activations", bent), ("clip", clipped), ("lengths", short))
    )
)
assert max(plain) < 1e-5
assert min(bent + clipped + short) > 0.05
PYTHON
