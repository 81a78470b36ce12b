#!/usr/bin/env bash
# The labels that a TreeEnsembleClassifier of two classes gives whose leaves have a weight for each class.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: ONNX Runtime gives the right scores, and beside them the label 1 for every row, whatever the scores and the
# model's labels are: here neither label is 1. onnx.reference gives the label of the larger score. With three classes both
# give that.
# Output seen: scores 0.8, 0.2 and 0.3, 0.7; "labels 5 and 9: ONNX Runtime [1, 1], reference [5, 9];
# of three classes [5, 9], [5, 9]".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

FLOAT = TensorProto.FLOAT
ROWS = {"x": np.array([[-1], [1]], np.float32)}


def results(labels):
    """Of one tree: below 0 the scores are 0.8 and 0.2, above 0.3 and 0.7; a third class has none."""
    count = len(labels)
    tree = helper.make_node(
        "TreeEnsembleClassifier",
        ["x"],
        ["label", "scores"],
        domain="ai.onnx.ml",
        nodes_treeids=[0] * 3,
        nodes_nodeids=[0, 1, 2],
        nodes_featureids=[0] * 3,
        nodes_values=[0.0] * 3,
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 0, 0],
        class_treeids=[0] * (2 * count),
        class_nodeids=[1] * count + [2] * count,
        class_ids=[*range(count)] * 2,
        class_weights=[0.8, 0.2, 0.0][:count] + [0.3, 0.7, 0.0][:count],
        classlabels_int64s=labels,
        post_transform="NONE",
    )
    given = helper.make_tensor_value_info("x", FLOAT, [2, 1])
    outputs = [
        helper.make_tensor_value_info("label", TensorProto.INT64, [2]),
        helper.make_tensor_value_info("scores", FLOAT, [2, count]),
    ]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(helper.make_graph([tree], "g", [given], outputs), opset_imports=opsets, ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found, scores = session.run(None, ROWS)
    expected, same = ReferenceEvaluator(model).run(None, ROWS)
    np.testing.assert_allclose(scores, same, atol=1e-6)
    return scores[:, :2].round(3).tolist(), found.tolist(), expected.tolist()


scores, found, expected = results([5, 9])
_, *three = results([5, 9, 11])
print(f"scores {scores}; labels 5 and 9: ONNX Runtime {found}, reference {expected}; of three classes {three}")
assert (found, expected) == ([1, 1], [5, 9])
assert three == [[5, 9], [5, 9]]
PYTHON
