#!/usr/bin/env bash
# The labels of a converted SGDClassifier(loss="modified_huber").
#
# Versions: scikit-learn 1.9.1, skl2onnx 1.20.0, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: its probabilities are cut at 0 and 1, so that several classes often share the largest one. scikit-learn
# chooses the label by the decisions; the converted model takes the first of the largest probabilities, which are right,
# so that a third of the labels are others. With loss="log_loss" no label differs.
# Output seen: "labels that differ of 60: modified_huber 24, log_loss 0; largest difference of probabilities 0e+00".
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
from sklearn.linear_model import SGDClassifier

onnxruntime.set_default_logger_severity(3)
random = np.random.default_rng(0)
x = random.standard_normal((120, 4)).astype(np.float32)
others = random.standard_normal((60, 4)).astype(np.float32)
classes = np.digitize(x[:, 0], [-0.5, 0.5])


def converted(model, rows, **options):
    """The results of the converted model."""
    given = {id(model): options} if options else None
    proto = to_onnx(model, rows[:1], options=given)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: rows})


def results(loss):
    """How many labels differ, and the largest difference of probabilities."""
    model = SGDClassifier(loss=loss, random_state=0).fit(x, classes)
    labels, shares = converted(model, others, zipmap=False)
    apart = float(np.abs(shares - model.predict_proba(others)).max())
    return int((labels != model.predict(others)).sum()), apart


(differing, apart), (none, _) = results("modified_huber"), results("log_loss")
print(
    f"labels that differ of 60: modified_huber {differing}, log_loss {none}; "
    f"largest difference of probabilities {apart:.0e}"
)
assert differing > 5 and none == 0
assert apart < 1e-5
PYTHON
