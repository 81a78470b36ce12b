#!/usr/bin/env bash
# ebm2onnx converts explainable boosting machines with a logarithmic link without it.
#
# Versions: ebm2onnx 3.3.1, interpret-core 0.7.8, onnx 1.23.2, onnxruntime 1.32.0, scikit-learn 1.9.1.
# Behaviour: ExplainableBoostingRegressor sums the scores of its terms, and where its objective is a deviance of
# Poisson, gamma or Tweedie, predict gives the exponential of the sum. The converted model gives the sum itself as the
# prediction, whatever the objective: a count of 2.5 becomes 0.9, and small ones are negative. Nothing is said. By the
# squared error, whose link is the identity, it is right.
# Output seen: "largest difference from predict: rmse 2e-07, poisson_deviance 4.3, gamma_deviance 2.7; from its
# logarithm: 9e-08 and 1e-07".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-deps ebm2onnx==3.3.1 interpret-core==0.7.8 loguru==0.7.3
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 scikit-learn==1.9.1 pandas==3.1.1

"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import ebm2onnx
import numpy as np
import onnxruntime
from interpret.glassbox import ExplainableBoostingRegressor

NAMES = ["a", "b", "c"]
x = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
counts = np.exp(x[:, 0]).round() + 1


def predictions(objective):
    """Those of a trained model, and of the converted one."""
    model = ExplainableBoostingRegressor(
        objective=objective, feature_names=NAMES, outer_bags=1, max_rounds=30, interactions=0, n_jobs=1, random_state=0
    ).fit(x, counts)
    converted = ebm2onnx.to_onnx(model, dict.fromkeys(NAMES, "float"))
    converted.ir_version = 8
    session = onnxruntime.InferenceSession(converted.SerializeToString(), providers=["CPUExecutionProvider"])
    return model.predict(x), session.run(["prediction"], {name: x[:, i] for i, name in enumerate(NAMES)})[0]


def apart(one, other):
    return float(np.abs(one - other).max())


found = {objective: predictions(objective) for objective in ("rmse", "poisson_deviance", "gamma_deviance")}
differences = {objective: apart(*pair) for objective, pair in found.items()}
logarithms = [apart(np.log(right), sums) for right, sums in list(found.values())[1:]]
print(
    f"largest difference from predict: rmse {differences['rmse']:.0e}, poisson_deviance "
    f"{differences['poisson_deviance']:.1f}, gamma_deviance {differences['gamma_deviance']:.1f}; from its logarithm: "
    f"{logarithms[0]:.0e} and {logarithms[1]:.0e}"
)
assert min(differences["poisson_deviance"], differences["gamma_deviance"]) > 1
assert max(differences["rmse"], *logarithms) < 1e-5
PYTHON
