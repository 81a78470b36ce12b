#!/usr/bin/env bash
# onnxmltools mixes up the trees of XGBoost models that grow several at a time.
#
# Versions: onnxmltools 1.16.0, xgboost-cpu 3.2.0, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: with num_parallel_tree each round grows that many trees for each class. The converter deals the trees to
# the classes one by one, so that most count for another class, and labels change; random forests (XGBRFClassifier) are
# such models. After early stopping it keeps as many trees as there are rounds up to the best one, a part of the trees
# of these rounds. With one tree a round all agrees. Nothing is said.
# Output seen: "labels that differ: one tree a round 0 of 200, three 105, a forest 35; early stopping: trees kept 7 of
# 14, regressor 1.9 apart, with one tree a round 0e+00".
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
from onnx.helper import get_attribute_value
from onnxmltools.convert.common.data_types import FloatTensorType

x = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
score = x[:, 0] + x[:, 1] * x[:, 2]
three = np.digitize(score, [-0.7, 0.7])


def converted(model):
    """The first result of the converted model, and the number of its trees."""
    initial = [("x", FloatTensorType([None, 3]))]
    graph = onnxmltools.convert_xgboost(model, initial_types=initial, target_opset=15)
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    ensemble = next(node for node in graph.graph.node if node.op_type.startswith("TreeEnsemble"))
    trees = next(get_attribute_value(item) for item in ensemble.attribute if item.name == "nodes_treeids")
    return session.run(None, {"x": x})[0].ravel(), len(set(trees))


def different(kind, **options):
    model = kind(n_estimators=4, max_depth=2, random_state=0, n_jobs=1, **options).fit(x, three)
    return int((model.predict(x) != converted(model)[0]).sum())


def stopped(trees):
    """Trees that are kept of those up to the best round, and how far the predictions are apart."""
    model = xgboost.XGBRegressor(
        n_estimators=40,
        max_depth=2,
        learning_rate=1.0,
        early_stopping_rounds=2,
        num_parallel_tree=trees,
        subsample=0.5,
        random_state=0,
        n_jobs=1,
    ).fit(x[:100], score[:100], eval_set=[(x[100:], score[100:])], verbose=False)
    found, kept = converted(model)
    return kept, (model.best_iteration + 1) * trees, float(np.abs(model.predict(x) - found).max())


single, parallel = different(xgboost.XGBClassifier), different(xgboost.XGBClassifier, num_parallel_tree=3)
forest = different(xgboost.XGBRFClassifier)
(kept, wanted, apart), (_, _, same) = stopped(2), stopped(1)
print(
    f"labels that differ: one tree a round {single} of 200, three {parallel}, a forest {forest}; early stopping: trees "
    f"kept {kept} of {wanted}, regressor {apart:.1f} apart, with one tree a round {same:.0e}"
)
assert single == 0 and parallel > 50 and forest > 10
assert 2 * kept == wanted and apart > 0.5 and same < 1e-5
PYTHON
