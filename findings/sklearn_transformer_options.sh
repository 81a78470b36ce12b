#!/usr/bin/env bash
# Options of transformers that skl2onnx leaves out.
#
# Versions: scikit-learn 1.9.1, skl2onnx 1.20.0, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: MaxAbsScaler(clip=True) keeps results in [-1, 1]; the converted one does not.
# SimpleImputer(add_indicator=True) appends a column of flags for each feature with holes, and without
# keep_empty_features a feature that had no value at all is dropped; the converted one has as many columns as the input.
# OrdinalEncoder's encoded_missing_value is not looked at where unknown categories have a value. Nothing is said, and
# layers behind read other columns.
# Output seen: "largest after clipping 1 and 2.7; columns with flags 8 and 4, without an empty feature 3 and 4; code of
# a missing value -2 and -1".
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
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import MaxAbsScaler, OrdinalEncoder

onnxruntime.set_default_logger_severity(3)
random = np.random.default_rng(0)
x = random.standard_normal((120, 4)).astype(np.float32)
holes = x.copy()
holes[random.random(x.shape) < 0.2] = np.nan
empty = holes.copy()
empty[:, 1] = np.nan


def both(model, rows):
    """What scikit-learn and the converted model make of rows."""
    proto = to_onnx(model, rows[:1])
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return model.transform(rows), session.run(None, {session.get_inputs()[0].name: rows})[0]


clipped = [float(np.abs(result).max()) for result in both(MaxAbsScaler(clip=True).fit(x[:60]), 2 * x)]
flags = [result.shape[1] for result in both(SimpleImputer(add_indicator=True).fit(holes), holes)]
dropped = [result.shape[1] for result in both(SimpleImputer().fit(empty), holes)]
categories = np.array([[0], [1], [np.nan]], np.float32)
encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2)
codes = [int(result[2, 0]) for result in both(encoder.fit(categories), categories)]
print(
    f"largest after clipping {clipped[0]:.2g} and {clipped[1]:.2g}; columns with flags {flags[0]} and {flags[1]}, "
    f"without an empty feature {dropped[0]} and {dropped[1]}; code of a missing value {codes[0]} and {codes[1]}"
)
assert clipped[0] == 1 and clipped[1] > 1.2
assert flags == [8, 4] and dropped == [3, 4]
assert codes[0] == -2 and codes[1] != -2
PYTHON
