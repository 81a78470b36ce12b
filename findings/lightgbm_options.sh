#!/usr/bin/env bash
# What becomes of LightGBM's options when onnxmltools converts a model, run by ONNX Runtime.
#
# Versions: onnxmltools 1.16.0, lightgbm 4.7.0, onnx 1.23.2, onnxruntime 1.32.0, scikit-learn 1.9.1.
# Behaviour: the converter takes models with linear_tree=True (linear models in the leaves), reg_sqrt=True (predictions
# are squared), another steepness of the sigmoid, one-against-all classes and random forests without a word, and the
# converted models predict something else: leaves become constants, results stay roots, the steepness is 1, classes are
# coupled by a softmax, and the sum of a forest of five trees is divided by 100. Plain boosting agrees to 2e-7.
# Output seen: largest differences "plain 2e-07, linear_tree 0.20, reg_sqrt 0.28, sigmoid 0.11, one against all 0.16,
# forest 2.0".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnxmltools==1.16.0 lightgbm==4.7.0 scikit-learn==1.9.1 onnx==1.23.2 \
    onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import lightgbm
import numpy as np
import onnxruntime
from onnxmltools import convert_lightgbm
from onnxmltools.convert.common.data_types import FloatTensorType

onnxruntime.set_default_logger_severity(3)
random = np.random.default_rng(0)
features = random.standard_normal((300, 4)).astype(np.float32)
target = np.exp(features[:, 0] * 0.5 + features[:, 1] * 0.1)
pair = (features[:, 0] + features[:, 2] > 0).astype(int)
three = np.digitize(features[:, 0], [-0.5, 0.5])
FOREST = {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}
CASES = {
    "plain": (lightgbm.LGBMRegressor, {}, target),
    "linear_tree": (lightgbm.LGBMRegressor, {"linear_tree": True}, target),
    "reg_sqrt": (lightgbm.LGBMRegressor, {"objective": "regression", "reg_sqrt": True}, target),
    "sigmoid": (lightgbm.LGBMClassifier, {"objective": "binary", "sigmoid": 2.0}, pair),
    "one against all": (lightgbm.LGBMClassifier, {"objective": "multiclassova"}, three),
    "forest": (lightgbm.LGBMRegressor, FOREST, target),
}


def difference(kind, options, wanted):
    trained = kind(n_estimators=5, verbose=-1, random_state=0, **options).fit(features, wanted)
    converted = convert_lightgbm(trained, initial_types=[("x", FloatTensorType([None, 4]))], zipmap=False)
    session = onnxruntime.InferenceSession(converted.SerializeToString(), providers=["CPUExecutionProvider"])
    results = session.run(None, {"x": features})
    if kind is lightgbm.LGBMRegressor:
        return np.abs(results[0].reshape(-1) - trained.predict(features)).max()
    return np.abs(results[1] - trained.predict_proba(features)).max()


found = {name: difference(*case) for name, case in CASES.items()}
print(", ".join(f"{name} {size:.2g}" for name, size in found.items()))
assert found.pop("plain") < 1e-5
assert min(found.values()) > 0.05
PYTHON
