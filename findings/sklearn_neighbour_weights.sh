#!/usr/bin/env bash
# What skl2onnx makes of nearest neighbours that count by their distance.
#
# Versions: scikit-learn 1.9.1, skl2onnx 1.20.0, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: KNeighborsRegressor and KNeighborsClassifier with weights="distance" weigh each neighbour by the reciprocal
# of its distance. The converted models weigh all alike: their results are those of weights="uniform", for each row. The
# conversion says nothing.
# Output seen: "largest difference: uniform 0e+00, distance 0.38; the converted model from the uniform one 2e-07;
# probabilities 0.12".
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
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

onnxruntime.set_default_logger_severity(3)
random = np.random.default_rng(0)
x = random.standard_normal((120, 4)).astype(np.float32)
others = random.standard_normal((60, 4)).astype(np.float32)
target = x[:, 0] * 2 + np.abs(x[:, 1])
classes = np.digitize(x[:, 0], [-0.5, 0.5])


def converted(model, rows, **options):
    """The results of the converted model."""
    given = {id(model): options} if options else None
    proto = to_onnx(model, rows[:1], options=given)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: rows})


def regressor(weights):
    return KNeighborsRegressor(3, weights=weights).fit(x, target)


plain, weighted = regressor("uniform"), regressor("distance")
by_onnx = converted(weighted, others)[0].ravel()
uniform = float(np.abs(converted(plain, others)[0].ravel() - plain.predict(others)).max())
distance = float(np.abs(by_onnx - weighted.predict(others)).max())
same = float(np.abs(by_onnx - plain.predict(others)).max())
classifier = KNeighborsClassifier(3, weights="distance").fit(x, classes)
shares = float(np.abs(converted(classifier, others, zipmap=False)[1] - classifier.predict_proba(others)).max())
print(
    f"largest difference: uniform {uniform:.0e}, distance {distance:.2g}; the converted model from the uniform one "
    f"{same:.0e}; probabilities {shares:.2g}"
)
assert max(uniform, same) < 1e-5
assert min(distance, shares) > 0.05
PYTHON
