#!/usr/bin/env bash
# tract computes a reverse LSTM, GRU or RNN as a forward one, with Sigmoid and Tanh whatever the model says.
#
# Versions: tract 0.23.9, onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: with direction="reverse" (all versions) the recurrent operators go from the last step to the first. tract
# reads such a model without a warning and goes from the first: its results are those of direction="forward".
# Bidirectional ones are right. The attributes activations and clip are not looked at either. ONNX Runtime and ONNX's
# own examples follow the text.
# Output seen: "largest difference from ONNX Runtime: LSTM forward 0e+00, bidirectional 0e+00, reverse 0.5; GRU reverse
# 1; LSTM with other activations 0.5, clipped 0.4; tract's reverse from its forward 0.0".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tract==0.23.9 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnxruntime
import tract
from onnx import TensorProto, helper, numpy_helper

STEPS, BATCH, WIDTH, HIDDEN = 4, 2, 3, 2
GATES = {"LSTM": 4, "GRU": 3}
random = np.random.default_rng(0)
x = random.standard_normal((STEPS, BATCH, WIDTH)).astype(np.float32)
weights = random.standard_normal((2, 4 * HIDDEN, WIDTH + HIDDEN)).astype(np.float32)


def results(operator, direction, **attributes):
    """The hidden states by ONNX Runtime and by tract."""
    directions, rows = (2 if direction == "bidirectional" else 1), GATES[operator] * HIDDEN
    part = weights[:directions, :rows]
    kept = [numpy_helper.from_array(part[..., :WIDTH], "w"), numpy_helper.from_array(part[..., WIDTH:], "r")]
    node = helper.make_node(operator, ["x", "w", "r"], ["y"], hidden_size=HIDDEN, direction=direction, **attributes)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [STEPS, directions, BATCH, HIDDEN])
    graph = helper.make_graph([node], "g", [given], [result], kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=7)
    onnx.save(model, "model.onnx")
    session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    (other,) = tract.onnx().load("model.onnx").into_model().into_runnable().run([x])
    return session.run(None, {"x": x})[0], other.to_numpy()


def apart(one, other):
    return float(np.abs(one - other).max())


forward, both, reverse = (results("LSTM", direction) for direction in ("forward", "bidirectional", "reverse"))
gated = results("GRU", "reverse")
bent = results("LSTM", "forward", activations=["HardSigmoid", "Relu", "Softsign"])
clipped = results("LSTM", "forward", clip=0.1)
same = apart(reverse[1], forward[1])
print(
    f"largest difference from ONNX Runtime: LSTM forward {apart(*forward):.0e}, bidirectional {apart(*both):.0e}, "
    f"reverse {apart(*reverse):.1g}; GRU reverse {apart(*gated):.1g}; LSTM with other activations "
    f"{apart(*bent):.1g}, clipped {apart(*clipped):.1g}; tract's reverse from its forward {same}"
)
assert max(apart(*forward), apart(*both)) < 1e-5
assert min(apart(*pair) for pair in (reverse, gated, bent, clipped)) > 0.05 and same == 0
PYTHON
