#!/usr/bin/env bash
# ONNX's reference couples the probabilities of an SVMClassifier otherwise than libsvm and ONNX Runtime.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0, numpy 2.4.6.
# Behaviour: with prob_a and prob_b an SVMClassifier (ai.onnx.ml 1) of several classes couples the probabilities of all
# pairs. libsvm, from whose models such nodes are converted, takes those that solve the second method of Wu, Lin and
# Weng (2004), by an iteration that stops at 0.005 over the number of classes. Here the method's equations are solved
# directly. ONNX Runtime is that near to the solution; onnx.reference is ten times as far from it as the limit. The
# scores of both agree.
# Output seen: "three classes: solved [0.439, 0.254, 0.308], ONNX Runtime 8e-04 apart, reference 2e-02 apart;
# iteration's limit 2e-03; scores 6e-08 apart".
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

CLASSES, LIMIT = 3, 0.005 / 3
SLOPES, OFFSETS = [-1.0, -1.0, -1.0], [0.0, 0.0, 0.1]
MACHINE = {
    "kernel_type": "RBF",
    "kernel_params": [0.5, 0.0, 3.0],
    "support_vectors": [0.0, 0.0, 1.0, 1.0, 2.0, 0.0],
    "vectors_per_class": [1, 1, 1],
    "coefficients": [1.0, -1.0, 0.5, 0.5, -1.0, -1.0],
    "rho": [0.1, 0.2, 0.3],
    "classlabels_ints": [0, 1, 2],
}


def results(**probabilities):
    """The second result of the classifier, by ONNX Runtime and ONNX's reference."""
    attributes = MACHINE | probabilities
    node = helper.make_node("SVMClassifier", ["x"], ["label", "y"], domain="ai.onnx.ml", **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2])
    label = helper.make_tensor_value_info("label", TensorProto.INT64, None)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    versions = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(helper.make_graph([node], "g", [x], [label, y]), opset_imports=versions, ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    given = {"x": np.array([[0.4, 0.6]], np.float32)}
    return session.run(None, given)[1][0], ReferenceEvaluator(model).run(None, given)[1][0]


def coupled(scores):
    """The probabilities whose ratios fit those of the pairs best, by the method's system of linear equations."""
    pairs = np.zeros((CLASSES, CLASSES))
    places = [(one, other) for one in range(CLASSES) for other in range(one + 1, CLASSES)]
    for (one, other), score, slope, offset in zip(places, scores, SLOPES, OFFSETS, strict=True):
        pairs[one, other] = 1 / (1 + np.exp(slope * score + offset))
        pairs[other, one] = 1 - pairs[one, other]
    system = np.ones((CLASSES + 1, CLASSES + 1))
    system[:CLASSES, :CLASSES] = -pairs * pairs.T + np.diag((pairs**2).sum(axis=0))
    system[-1, -1] = 0
    return np.linalg.solve(system, [0] * CLASSES + [1])[:CLASSES]


scores, same = results()
solved, (runtime, reference) = coupled(scores), results(prob_a=SLOPES, prob_b=OFFSETS)
near, far = np.abs(runtime - solved).max(), np.abs(reference - solved).max()
print(
    f"three classes: solved {solved.round(3).tolist()}, ONNX Runtime {near:.0e} apart, reference {far:.0e} apart; "
    f"iteration's limit {LIMIT:.0e}; scores {np.abs(scores - same).max():.0e} apart"
)
assert near < LIMIT < 0.01 < far
assert np.abs(scores - same).max() < 1e-5
PYTHON
