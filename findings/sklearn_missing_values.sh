#!/usr/bin/env bash
# What a converted tree of scikit-learn does with missing values.
#
# Versions: scikit-learn 1.9.1, skl2onnx 1.20.0, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: trees and forests learn from rows with NaN on which side of each split these go on. skl2onnx writes every
# split with the same side for NaN, so that rows with missing values reach other leaves; rows without are right. ONNX
# has an attribute for it in its tree operators, nodes_missing_value_tracks_true. The conversion says nothing.
# Output seen: "largest difference: full rows 2e-07, rows with NaN 3.5 (tree), 5.4 (forest); labels that differ 19 of 60
# (extra trees)".
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
from sklearn.ensemble import ExtraTreesClassifier, RandomForestRegressor
from sklearn.tree import DecisionTreeRegressor

onnxruntime.set_default_logger_severity(3)
random = np.random.default_rng(0)
x = random.standard_normal((120, 4)).astype(np.float32)
others = random.standard_normal((60, 4)).astype(np.float32)
target = x[:, 0] * 2 + np.abs(x[:, 1])
classes = np.digitize(x[:, 0], [-0.5, 0.5])
holes = x.copy()
holes[random.random(x.shape) < 0.2] = np.nan
other_holes = others.copy()
other_holes[random.random(others.shape) < 0.2] = np.nan


def converted(model, rows, **options):
    """The results of the converted model."""
    given = {id(model): options} if options else None
    proto = to_onnx(model, rows[:1], options=given)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: rows})


def difference(model, rows):
    return float(np.abs(converted(model, rows)[0].ravel() - model.predict(rows)).max())


tree = DecisionTreeRegressor(max_depth=4, random_state=0).fit(holes, target)
forest = RandomForestRegressor(3, random_state=0).fit(holes, target)
extra = ExtraTreesClassifier(3, random_state=0).fit(holes, classes)
full = max(difference(model, others) for model in (tree, forest))
partial = [difference(model, other_holes) for model in (tree, forest)]
differing = int((converted(extra, other_holes, zipmap=False)[0] != extra.predict(other_holes)).sum())
print(
    f"largest difference: full rows {full:.0e}, rows with NaN {partial[0]:.2g} (tree), {partial[1]:.2g} (forest); "
    f"labels that differ {differing} of 60 (extra trees)"
)
assert full < 1e-4
assert min(partial) > 0.1 and differing > 0
PYTHON
