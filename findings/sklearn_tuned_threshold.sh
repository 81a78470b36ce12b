#!/usr/bin/env bash
# A converted classifier with a tuned threshold decides by one half.
#
# Versions: skl2onnx 1.20.0, scikit-learn 1.9.1, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: TunedThresholdClassifierCV chooses a threshold by cross-validation, and compares the probability of the
# positive class with it. skl2onnx converts the classifier within alone: its labels are those of one half, which is the
# one thing that the class is there to change. Nothing is said; the probabilities agree. Known as issue 1226 of
# sklearn-onnx, mended after this release.
# Output seen: "threshold 0.32: of 60 rows 18 positive, converted 12; by one half 12; probabilities 6e-08 apart".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet skl2onnx==1.20.0 scikit-learn==1.9.1 onnx==1.23.2 onnxruntime==1.32.0 \
    numpy==2.4.6

"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import onnxruntime
from skl2onnx import to_onnx
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import TunedThresholdClassifierCV

x = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
labels = (x[:, 0] + 0.8 * x[:, 1] > 1).astype(int)
model = TunedThresholdClassifierCV(LogisticRegression(), scoring="balanced_accuracy", cv=3).fit(x, labels)
converted = to_onnx(model, x[:1], options={"zipmap": False})
session = onnxruntime.InferenceSession(converted.SerializeToString(), providers=["CPUExecutionProvider"])
found, shares = session.run(None, {"X": x})
right, halved = int(model.predict(x).sum()), int((model.predict_proba(x)[:, 1] > 0.5).sum())
apart = float(np.abs(shares - model.predict_proba(x)).max())
print(
    f"threshold {model.best_threshold_:.2f}: of 60 rows {right} positive, converted {int(found.sum())}; by one half "
    f"{halved}; probabilities {apart:.0e} apart"
)
assert model.best_threshold_ < 0.45 and right > halved
assert int(found.sum()) == halved and apart < 1e-5
PYTHON
