#!/usr/bin/env bash
# The probabilities of a converted LinearDiscriminantAnalysis of two classes.
#
# Versions: scikit-learn 1.9.1, skl2onnx 1.20.0, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: with two classes scikit-learn's probability is the logistic function of the decision. skl2onnx gives the
# decision and its negative to a softmax, which is the logistic function of twice the decision: probabilities are nearer
# to 0 and 1, whatever the solver. Labels are right, and so is everything with three classes.
# Output seen: "largest difference of probabilities: two classes 0.15, three 1e-07; from the logistic function of twice
# the decision 6e-08; labels that differ 0".
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
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

onnxruntime.set_default_logger_severity(3)
random = np.random.default_rng(0)
x = random.standard_normal((120, 4)).astype(np.float32)
others = random.standard_normal((60, 4)).astype(np.float32)
two = (x[:, 0] + x[:, 1] + random.standard_normal(120) > 0).astype(int)
three = np.digitize(x[:, 0], [-0.5, 0.5])


def converted(model, rows, **options):
    """The results of the converted model."""
    given = {id(model): options} if options else None
    proto = to_onnx(model, rows[:1], options=given)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: rows})


def results(classes):
    model = LinearDiscriminantAnalysis().fit(x, classes)
    labels, shares = converted(model, others, zipmap=False)
    return model, labels, shares, float(np.abs(shares - model.predict_proba(others)).max())


model, labels, shares, wrong = results(two)
right = results(three)[-1]
doubled = 1 / (1 + np.exp(-2 * model.decision_function(others)))
explained = float(np.abs(shares[:, 1] - doubled).max())
differing = int((labels != model.predict(others)).sum())
print(
    f"largest difference of probabilities: two classes {wrong:.2g}, three {right:.0e}; from the logistic function of "
    f"twice the decision {explained:.0e}; labels that differ {differing}"
)
assert wrong > 0.05
assert max(right, explained) < 1e-5 and differing == 0
PYTHON
