#!/usr/bin/env bash
# CatBoost's ONNX files give other labels, probabilities and predictions than CatBoost.
#
# Versions: catboost 1.2.10, onnxruntime 1.32.0.
# Behaviour: save_model(format="onnx") writes these models without a word. Of two classes with labels 5 and 9 the file
# gives 0 and 1 (of three, and of strings, the model's own); a probability threshold that was set is left out;
# probabilities of one against all are coupled by a softmax; of Poisson the file gives the logarithm of what predict
# gives; of two targets it declares one, so that ONNX Runtime refuses it. Others are refused with a message, as a scale.
# Output seen: "labels 5, 9: CatBoost [5, 9], file [0, 1]; threshold 0.9: 99 of 200 labels differ; one against all 0.16
# apart, a softmax 8e-08; Poisson 1.3 apart, its logarithm 3e-08; two targets refused; plain 1e-07".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-deps catboost==1.2.10
"$folder/venv/bin/pip" install --quiet onnxruntime==1.32.0 numpy==2.4.6 pandas==3.1.1 scipy==1.17.1 six==1.17.0

cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import onnxruntime
from catboost import CatBoostClassifier, CatBoostRegressor

onnxruntime.set_default_logger_severity(4)
x = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
score = x[:, 0] + x[:, 1] * x[:, 2]
three = np.digitize(score, [-0.7, 0.7])


def trained(kind, target, threshold=None, **options):
    """A trained model, and what the file that it saves gives for the same rows."""
    settings = {"verbose": False, "thread_count": 1, "random_seed": 0, "allow_writing_files": False}
    model = kind(iterations=4, depth=2, **settings, **options)
    model.fit(x, target)
    if threshold is not None:
        model.set_probability_threshold(threshold)
    model.save_model("m.onnx", format="onnx")
    session = onnxruntime.InferenceSession("m.onnx", providers=["CPUExecutionProvider"])
    return model, session.run(None, {"features": x})


def probabilities(model, results):
    rows = [[row[label] for label in sorted(row)] for row in results[1]]
    return float(np.abs(model.predict_proba(x) - rows).max())


def apart(values, results):
    return float(np.abs(values - results[0].ravel()).max())


model, results = trained(CatBoostRegressor, score)
plain = apart(model.predict(x), results)
model, results = trained(CatBoostClassifier, three)
coupled = probabilities(model, results)
model, results = trained(CatBoostClassifier, np.where(score > 0, 9, 5))
labels, given = (np.unique(found).tolist() for found in (model.predict(x), results[0]))
model, results = trained(CatBoostClassifier, (score > 0).astype(int), threshold=0.9)
differ = int((model.predict(x) != results[0]).sum())
model, results = trained(CatBoostClassifier, three, loss_function="MultiClassOneVsAll")
alone = probabilities(model, results)
model, results = trained(CatBoostRegressor, np.exp(score).round(), loss_function="Poisson")
counts, logarithm = apart(model.predict(x), results), apart(np.log(model.predict(x)), results)
try:
    trained(CatBoostRegressor, np.stack([score, x[:, 2]], 1), loss_function="MultiRMSE")
    several = "taken"
except onnxruntime.capi.onnxruntime_pybind11_state.Fail:
    several = "refused"
print(
    f"labels 5, 9: CatBoost {labels}, file {given}; threshold 0.9: {differ} of 200 labels differ; one against all "
    f"{alone:.2f} apart, a softmax {coupled:.0e}; Poisson {counts:.1f} apart, its logarithm {logarithm:.0e}; two "
    f"targets {several}; plain {plain:.0e}"
)
assert labels == [5, 9] and given == [0, 1] and differ > 50
assert alone > 0.1 and counts > 1 and several == "refused"
assert max(coupled, logarithm, plain) < 1e-6
PYTHON
