#!/usr/bin/env bash
# ONNX Runtime's DynamicQuantizeLSTM gives other numbers with other numbers of threads, and where all steps are asked for.
#
# Versions: onnxruntime 1.32.0 (CPU), onnx 1.23.2, numpy 2.4.6.
# Behaviour: quantize_dynamic turns an LSTM into DynamicQuantizeLSTM, whose states are quantised in each step by their
# range. ONNX Runtime divides the sequences of a batch among its threads, and finds a range for those of each thread; so
# from two sequences on the results depend on the number of threads, as they do not for an LSTM in floats. With
# sequences of unequal lengths, those that ended count as zeros if the first output, Y, is named, and with their last
# state if it is not: the last state of the longest sequence, which is the same output, depends on whether Y is asked for.
# Output seen: "largest difference between 1 and 2 threads: 1 sequence 0, 8 sequences 0.015 (LSTM in floats 0); between a
# last state with and without Y: equal lengths 0, unequal ones 0.019".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6

"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

STEPS, WIDTH, HIDDEN = 10, 16, 32
BYTES = np.random.default_rng(0).integers(-100, 100, (1, WIDTH + HIDDEN, 4 * HIDDEN)).astype(np.int8)
ALL = ("y", "y_h", "y_c")


def model(batch, outputs=ALL, quantised=True):
    """An LSTM by bytes that stand for hundredths, or by the same numbers in floats."""
    inputs, recurrence = BYTES[:, :WIDTH], BYTES[:, WIDTH:]
    if quantised:
        step, point = np.full(1, 0.01, np.float32), np.zeros(1, np.int8)
        constants = {"w": inputs, "r": recurrence, "ws": step, "wz": point, "rs": step, "rz": point}
        operands, domain = ["x", "w", "r", "", "lengths", "", "", "", "ws", "wz", "rs", "rz"], "com.microsoft"
    else:
        floats = [np.float32(0.01) * each.transpose(0, 2, 1).astype(np.float32) for each in (inputs, recurrence)]
        constants, operands, domain = dict(zip("wr", floats)), ["x", "w", "r", "", "lengths"], ""
    kind = "DynamicQuantizeLSTM" if quantised else "LSTM"
    node = helper.make_node(kind, operands, list(outputs), hidden_size=HIDDEN, domain=domain)
    graph = helper.make_graph(
        [node],
        "lstm",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [STEPS, batch, WIDTH]),
            helper.make_tensor_value_info("lengths", TensorProto.INT32, [batch]),
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs if name],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=9).SerializeToString()


def last_state(batch, threads=1, lengths=None, **options):
    """The last states, [batch, hidden], of sequences each of which is smaller than the one before."""
    x = np.random.default_rng(1).normal(size=(STEPS, batch, WIDTH)) * np.linspace(3, 0.1, batch)[None, :, None]
    feeds = {"x": x.astype(np.float32), "lengths": np.asarray(lengths or [STEPS] * batch, np.int32)}
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.log_severity_level = threads, 3
    session = onnxruntime.InferenceSession(model(batch, **options), settings, providers=["CPUExecutionProvider"])
    return session.run(["y_h"], feeds)[0][0]


def between_threads(batch, **options):
    return float(np.abs(last_state(batch, 1, **options) - last_state(batch, 2, **options)).max())


def by_outputs(lengths):
    """The difference in the last state of the longest sequence, which is the second."""
    states = [last_state(2, lengths=lengths, outputs=outputs) for outputs in (ALL, ("", *ALL[1:]))]
    return float(np.abs(states[0] - states[1])[1].max())


one, eight, floats = between_threads(1), between_threads(8), between_threads(8, quantised=False)
equal, unequal = by_outputs([STEPS, STEPS]), by_outputs([3, STEPS])
print(
    f"largest difference between 1 and 2 threads: 1 sequence {one:.2g}, 8 sequences {eight:.2g} (LSTM in floats "
    f"{floats:.2g}); between a last state with and without Y: equal lengths {equal:.2g}, unequal ones {unequal:.2g}"
)
assert one == equal == 0 and floats < 1e-5
assert eight > 1e-3 and unequal > 1e-3
PYTHON
