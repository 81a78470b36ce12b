#!/usr/bin/env bash
# The probabilities of a converted CalibratedClassifierCV(method="isotonic").
#
# Versions: scikit-learn 1.9.1, skl2onnx 1.20.0, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: isotonic calibration interpolates between the thresholds that it has learnt. The converted model looks the
# number of the threshold up and gives that one's value: probabilities rise in steps. Calibration by a sigmoid agrees.
# The conversion says nothing.
# Output seen: "largest difference of probabilities: sigmoid 1e-07, isotonic 0.073; rows that differ 34 of 60".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet scikit-learn==1.9.1 skl2onnx==1.20.0 \
    onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from skl2onnx import to_onnx
from sklearn.calibration import CalibratedClassifierCV
from sklearn.naive_bayes import GaussianNB

onnxruntime.set_default_logger_severity(3)
random = np.random.default_rng(0)
x = random.standard_normal((120, 4)).astype(np.float32)
others = random.standard_normal((60, 4)).astype(np.float32)
classes = (x[:, 0] + x[:, 1] + random.standard_normal(120) > 0).astype(int)


def converted(model, rows, **options):
    """The results of the converted model."""
    given = {id(model): options} if options else None
    proto = to_onnx(model, rows[:1], options=given)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: rows})


def differences(method):
    model = CalibratedClassifierCV(GaussianNB(), method=method).fit(x, classes)
    return np.abs(converted(model, others, zipmap=False)[1] - model.predict_proba(others)).max(axis=1)


sigmoid, isotonic = differences("sigmoid"), differences("isotonic")
differing = int((isotonic > 1e-3).sum())
print(
    f"largest difference of probabilities: sigmoid {sigmoid.max():.0e}, isotonic {isotonic.max():.2g}; "
    f"rows that differ {differing} of 60"
)
assert sigmoid.max() < 1e-5
assert isotonic.max() > 0.02 and differing > 5
PYTHON
