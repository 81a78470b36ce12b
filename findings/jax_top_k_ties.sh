#!/usr/bin/env bash
# jaxonnxruntime's TopK gives the last of equal values first, except along the last axis of a matrix.
#
# Versions: jaxonnxruntime 0.3.0, jax 0.10.2, onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: ONNX breaks ties by the lower index. jaxonnxruntime sorts upwards and turns the result around, so that of
# equal values the highest indices come out; a matrix along its second axis takes another path. Detectors that take the
# best of many equal scores (zeros behind a threshold, quantised ones) pick other boxes.
# Output seen: "TopK of 1, 3, 3, 3: ONNX Runtime indices [1, 2], jaxonnxruntime [3, 2] in three dimensions, [1, 2] in two".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet jaxonnxruntime==0.3.0 jax==0.10.2 absl-py==2.5.0 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import onnx
import onnx.parser
import onnxruntime
from jaxonnxruntime import config
from jaxonnxruntime.backend import Backend

config.update("jaxort_only_allow_initializers_as_static_args", False)


def indices(shape):
    """The indices of the two largest by ONNX Runtime and by jaxonnxruntime."""
    given, result = ",".join(map(str, shape)), ",".join(map(str, (*shape[:-1], 2)))
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 13]> best (float[{given}] x) => (float[{result}] y, int64[{result}] i) '
        "<int64[1] k = {2}> { y, i = TopK(x, k) }"
    )
    onnx.checker.check_model(model)
    x = np.array([1, 3, 3, 3], np.float32).reshape(shape)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    own = Backend.prepare(model).run([x])
    return session.run(None, {"x": x})[1].ravel().tolist(), np.asarray(own[1]).ravel().tolist()


(right, three), (_, two) = indices((1, 1, 4)), indices((1, 4))
print(
    f"TopK of 1, 3, 3, 3: ONNX Runtime indices {right}, jaxonnxruntime {three} in three dimensions, {two} in two"
)
assert (right, three, two) == ([1, 2], [3, 2], [1, 2])
PYTHON
