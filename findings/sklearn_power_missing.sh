#!/usr/bin/env bash
# A converted PowerTransformer by Yeo and Johnson makes numbers of missing values.
#
# Versions: skl2onnx 1.20.0, scikit-learn 1.9.1, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: scikit-learn's PowerTransformer leaves missing values out of its fit, and says that transform keeps them.
# The converted model replaces NaN by 0 before it scales, as it computes NaN of its own for operands of 0: an imputer
# behind it has nothing to do, and where values are far from 0 an unknown one becomes the least of all. By the method
# box-cox, and by other scalers, missing values stay. Nothing is said. Known values agree.
# Output seen: "a missing value: scikit-learn nan, converted -2.35; by box-cox nan and nan; StandardScaler nan and nan;
# known values 5e-07 apart".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet skl2onnx==1.20.0 scikit-learn==1.9.1 onnx==1.23.2 onnxruntime==1.32.0 \
    numpy==2.4.6

"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import math

import numpy as np
import onnxruntime
from skl2onnx import to_onnx
from sklearn.preprocessing import PowerTransformer, StandardScaler

numbers = np.exp(np.random.default_rng(0).normal(size=(60, 2))).astype(np.float32)
missing = numbers.copy()
missing[0, 0] = np.nan


def transformed(transformer):
    """What becomes of the missing value, by scikit-learn and the converted model, and how far the others are apart."""
    transformer.fit(missing)
    converted = to_onnx(transformer, numbers[:1])
    session = onnxruntime.InferenceSession(converted.SerializeToString(), providers=["CPUExecutionProvider"])
    right, found = transformer.transform(missing), session.run(None, {"X": missing})[0]
    return float(right[0, 0]), float(found[0, 0]), float(np.abs(right - found).ravel()[1:].max())


right, wrong, apart = transformed(PowerTransformer())
boxed, scaled = transformed(PowerTransformer(method="box-cox")), transformed(StandardScaler())
print(
    f"a missing value: scikit-learn {right}, converted {wrong:.2f}; by box-cox {boxed[0]} and {boxed[1]}; "
    f"StandardScaler {scaled[0]} and {scaled[1]}; known values {apart:.0e} apart"
)
assert math.isnan(right) and math.isfinite(wrong) and apart < 1e-4
assert all(math.isnan(value) for value in (*boxed[:2], *scaled[:2]))
PYTHON
