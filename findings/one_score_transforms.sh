#!/usr/bin/env bash
# ONNX Runtime's classifiers of two classes and one score: no softmax, and labels that their shares contradict.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: LinearClassifier and TreeEnsembleClassifier (ai.onnx.ml 1 and 3) may have two labels, and weights for one
# class alone. ONNX Runtime applies their post_transform LOGISTIC then, and leaves out SOFTMAX and SOFTMAX_ZERO without
# a word: shares are negative, or above one. Of trees with positive weights, by LOGISTIC, it chooses the label by the
# raw score, against one half, beside a share of 0.57 for the other class. ONNX's reference applies a softmax, and gives
# the label of the larger share.
# Output seen: "linear, score -0.5: SOFTMAX [1.5, -0.5], reference [0.73, 0.27]; trees, score 0.3: SOFTMAX [0.7, 0.3],
# reference [0.35, 0.65]; LOGISTIC [0.43, 0.57] with label 3 of [3, 7], reference 7".
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

LABELS = [3, 7]


def results(operator, transform, **attributes):
    """Label and shares of one row by ONNX Runtime, and by ONNX's reference."""
    node = helper.make_node(
        operator, ["x"], ["label", "shares"], domain="ai.onnx.ml", post_transform=transform, **attributes
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1])
    label = helper.make_tensor_value_info("label", TensorProto.INT64, None)
    shares = helper.make_tensor_value_info("shares", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [x], [label, shares])
    versions = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=versions, ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    given = {"x": np.array([[1]], np.float32)}
    found = session.run(None, given), ReferenceEvaluator(model).run(None, given)
    return [(int(label[0]), [round(float(share), 2) for share in shares[0]]) for label, shares in found]


def linear(transform):
    return results("LinearClassifier", transform, coefficients=[-0.5], intercepts=[0.0], classlabels_ints=LABELS)


def trees(transform):
    """One tree of two leaves, of which the row reaches that of 0.3."""
    return results(
        "TreeEnsembleClassifier",
        transform,
        nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2],
        nodes_featureids=[0, 0, 0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_values=[1.0, 0.0, 0.0],
        nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 0, 0],
        class_ids=[0, 0],
        class_nodeids=[1, 2],
        class_treeids=[0, 0],
        class_weights=[0.3, 0.8],
        classlabels_int64s=LABELS,
    )


line, leaf, logistic = linear("SOFTMAX"), trees("SOFTMAX"), trees("LOGISTIC")
print(
    f"linear, score -0.5: SOFTMAX {line[0][1]}, reference {line[1][1]}; trees, score 0.3: SOFTMAX {leaf[0][1]}, "
    f"reference {leaf[1][1]}; LOGISTIC {logistic[0][1]} with label {logistic[0][0]} of {LABELS}, reference "
    f"{logistic[1][0]}"
)
assert line[0][1] == linear("SOFTMAX_ZERO")[0][1] == [1.5, -0.5] and line[1][1] == [0.73, 0.27]
assert leaf[0][1] == [0.7, 0.3] and leaf[1][1] == [0.35, 0.65]
assert logistic == [(3, [0.43, 0.57]), (7, [0.43, 0.57])]
PYTHON
