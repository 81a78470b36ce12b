#!/usr/bin/env bash
# onnxmltools converts XGBoost models of several targets and of logistic objectives to models of something else.
#
# Versions: onnxmltools 1.16.0, xgboost-cpu 3.2.0, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: the converter takes these models without a word. Of a regressor with two targets, or two quantiles, all
# trees are summed into the first, and the second is 0. Of a regressor whose objective is reg:logistic or
# binary:logistic it gives the sum of leaves and mean as it is, without the logistic function. Of a classifier by
# multi:softmax, whose predict_proba gives shares, it gives scores in their place. One target and multi:softprob agree.
# Output seen: "largest difference from XGBoost: one target 1e-07, two targets 1.4 (the second all 0), two quantiles 2.5
# (the second all 0), reg:logistic 0.53, binary:logistic 0.95; multi:softprob 6e-08, multi:softmax 0.95".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnxmltools==1.16.0 xgboost-cpu==3.2.0 onnx==1.23.2 onnxruntime==1.32.0 \
    numpy==2.4.6 scikit-learn==1.9.1

"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import onnxmltools
import onnxruntime
import xgboost
from onnxmltools.convert.common.data_types import FloatTensorType

onnxruntime.set_default_logger_severity(3)
x = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
score = x[:, 0] + x[:, 1] * x[:, 2]
both = np.stack([score, x[:, 2]], 1)
shares, positive, three = 1 / (1 + np.exp(-score)), (score > 0).astype(int), np.digitize(score, [-0.7, 0.7])


def converted(kind, target, **options):
    """What a trained model gives, and the results of the converted one."""
    model = kind(n_estimators=4, max_depth=2, random_state=0, n_jobs=1, **options).fit(x, target)
    initial = [("x", FloatTensorType([None, 3]))]
    graph = onnxmltools.convert_xgboost(model, initial_types=initial, target_opset=15)
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    results = session.run(None, {"x": x})
    right = model.predict_proba(x) if kind is xgboost.XGBClassifier else model.predict(x)
    return right.reshape(200, -1), results[-1].reshape(200, -1)


def apart(kind, target, **options):
    right, found = converted(kind, target, **options)
    second = " (the second all 0)" if found.shape[1] == 2 and not found[:, 1].any() else ""
    return float(np.abs(right - found).max()), second


Regressor, Classifier = xgboost.XGBRegressor, xgboost.XGBClassifier
(one, _), (two, lost) = apart(Regressor, score), apart(Regressor, both)
quantiles, away = apart(Regressor, score, objective="reg:quantileerror", quantile_alpha=[0.1, 0.9])
logistic, _ = apart(Regressor, shares, objective="reg:logistic")
binary, _ = apart(Regressor, positive, objective="binary:logistic")
(probable, _), (scores, _) = (apart(Classifier, three, objective=f"multi:{name}") for name in ("softprob", "softmax"))
print(
    f"largest difference from XGBoost: one target {one:.0e}, two targets {two:.1f}{lost}, two quantiles "
    f"{quantiles:.1f}{away}, reg:logistic {logistic:.2f}, binary:logistic {binary:.2f}; multi:softprob {probable:.0e}, "
    f"multi:softmax {scores:.2f}"
)
assert max(one, probable) < 1e-5
assert min(two, quantiles) > 1 and lost == away != ""
assert min(logistic, binary, scores) > 0.3
PYTHON
