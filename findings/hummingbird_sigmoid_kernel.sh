#!/usr/bin/env bash
# Hummingbird computes the sigmoid kernel of scikit-learn's support vector machines by the logistic function.
#
# Versions: hummingbird-ml 0.4.12, scikit-learn 1.9.1, torch 2.14.1.
# Behaviour: scikit-learn's kernel "sigmoid" is tanh(gamma x y + coef0). Hummingbird converts SVC and NuSVC with this
# kernel without a word, and computes 1 / (1 + exp(-(gamma x y + coef0))) in its place, so that labels differ. The
# trained coefficients summed over the logistic function give just the labels of the conversion. The kernels linear,
# poly and rbf agree with scikit-learn.
# Output seen: "labels of 300 that differ: linear 0, poly 0, rbf 0; sigmoid 60 (SVC), 67 (NuSVC); from the same sums over
# the logistic function 0".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet hummingbird-ml==0.4.12 scikit-learn==1.9.1 scipy==1.17.1 torch==2.14.1 \
    onnx==1.16.1 numpy==2.4.6

"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import hummingbird.ml
import numpy as np
from sklearn.svm import SVC, NuSVC

x = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
label = (x[:, 0] + x[:, 1] * x[:, 2] > 0).astype(int)


def labels(kind, kernel):
    """The trained model and what its conversion predicts."""
    model = kind(kernel=kernel, gamma=0.5, coef0=0.25).fit(x, label)
    return model, hummingbird.ml.convert(model, "torch", x[:3]).predict(x)


def differ(kind, kernel):
    model, found = labels(kind, kernel)
    return int((model.predict(x) != found).sum())


others = {kernel: differ(SVC, kernel) for kernel in ("linear", "poly", "rbf")}
sigmoid = [differ(kind, "sigmoid") for kind in (SVC, NuSVC)]
model, found = labels(SVC, "sigmoid")
logistic = 1 / (1 + np.exp(-(0.5 * x @ model.support_vectors_.T + 0.25)))
explained = int(((logistic @ model.dual_coef_[0] + model.intercept_[0] > 0) != found).sum())
print(
    "labels of 300 that differ: " + ", ".join(f"{kernel} {count}" for kernel, count in others.items()) + f"; sigmoid "
    f"{sigmoid[0]} (SVC), {sigmoid[1]} (NuSVC); from the same sums over the logistic function {explained}"
)
assert not any(others.values()) and explained == 0
assert min(sigmoid) > 30
PYTHON
