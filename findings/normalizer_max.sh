#!/usr/bin/env bash
# Rows that a converted Normalizer(norm="max") of scikit-learn divides by, run by ONNX Runtime.
#
# Versions: scikit-learn 1.9.1, skl2onnx 1.20.0, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: scikit-learn and onnx.reference divide a row by its largest absolute value. The formula of ai.onnx.ml's
# Normalizer has the largest value, and so has ONNX Runtime: [-4, 2] becomes [-2, 1] in place of [-1, 0.5], and a row of
# negative numbers changes its signs, [-1, -2] to [1, 2]. skl2onnx writes the operator all the same.
# Output seen: "scikit-learn [-1, 0.5] [-0.5, -1], reference the same, ONNX Runtime [-2, 1] [1, 2]".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet scikit-learn==1.9.1 skl2onnx==1.20.0 onnx==1.23.2 onnxruntime==1.32.0 \
    numpy==2.4.6

"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx.reference import ReferenceEvaluator
from skl2onnx import to_onnx
from sklearn.preprocessing import Normalizer

rows = np.array([[-4, 2], [-1, -2]], np.float32)
trained = Normalizer(norm="max").fit(rows)
converted = to_onnx(trained, rows[:1])
session = onnxruntime.InferenceSession(converted.SerializeToString(), providers=["CPUExecutionProvider"])
wanted = trained.transform(rows).tolist()
reference = ReferenceEvaluator(converted).run(None, {"X": rows})[0].tolist()
runtime = session.run(None, {"X": rows})[0].tolist()
print(f"scikit-learn {wanted}, reference {reference}, ONNX Runtime {runtime}")
assert wanted == reference == [[-1, 0.5], [-0.5, -1]]
assert runtime == [[-2, 1], [1, 2]]
PYTHON
