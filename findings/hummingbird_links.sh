#!/usr/bin/env bash
# Hummingbird leaves out what some of scikit-learn's models do behind, or before, their sums.
#
# Versions: hummingbird-ml 0.4.12, scikit-learn 1.9.1, torch 2.14.1.
# Behaviour: it converts these models without a word. Histogram boosting with the losses poisson and gamma gives the
# sum of leaves without the exponential function; where it was trained with missing values, these take another branch
# than the trained one; gradient boosting with the loss exponential takes the logistic function of the sum, where
# scikit-learn takes that of twice the sum; a multi-layer perceptron for several labels gives a softmax over them, where
# each has its own logistic function. The same models with their default losses, complete data and one label agree.
# Output seen: "largest difference of shares or values: default losses 1e-07; poisson 3.1, gamma 1.9, exponential 0.095,
# missing values 0.41, several labels 0.32".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet hummingbird-ml==0.4.12 scikit-learn==1.9.1 scipy==1.17.1 torch==2.14.1 \
    onnx==1.16.1 numpy==2.4.6

"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import hummingbird.ml
import numpy as np
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.neural_network import MLPClassifier

generator = np.random.default_rng(0)
x = generator.normal(size=(200, 5)).astype(np.float32)
value = x[:, 0] + x[:, 1] * x[:, 2]
label, three = (value > 0).astype(int), np.digitize(value, [-0.7, 0.7])
holes = np.where(generator.random(x.shape) < 0.1, np.nan, x).astype(np.float32)
several = np.stack([label, 1 - label, three > 1], 1).astype(int)


def apart(model, data, target):
    """The largest difference between a trained model and its conversion."""
    model.fit(data, target)
    method = "predict_proba" if hasattr(model, "predict_proba") else "predict"
    right, found = (getattr(m, method)(data) for m in (model, hummingbird.ml.convert(model, "torch", data[:3])))
    return float(np.abs(right - np.asarray(found).reshape(right.shape)).max())


def perceptron():
    return MLPClassifier((8,), max_iter=20, random_state=0)


usual = max(
    apart(HistGradientBoostingRegressor(max_iter=5), x, np.exp(value)),
    apart(HistGradientBoostingClassifier(max_iter=5), x, three),
    apart(GradientBoostingClassifier(n_estimators=5), x, label),
    apart(perceptron(), x, three),
)
poisson, gamma = (
    apart(HistGradientBoostingRegressor(max_iter=5, loss=loss), x, np.exp(value)) for loss in ("poisson", "gamma")
)
exponential = apart(GradientBoostingClassifier(n_estimators=5, loss="exponential"), x, label)
missing, labels = apart(HistGradientBoostingClassifier(max_iter=5), holes, three), apart(perceptron(), x, several)
print(
    f"largest difference of shares or values: default losses {usual:.0e}; poisson {poisson:.1f}, gamma {gamma:.1f}, "
    f"exponential {exponential:.3f}, missing values {missing:.2f}, several labels {labels:.2f}"
)
assert usual < 1e-5
assert min(poisson, gamma) > 1 and min(exponential, missing, labels) > 0.03
PYTHON
