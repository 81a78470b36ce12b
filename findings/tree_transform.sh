#!/usr/bin/env bash
# Which function TreeEnsemble of ai.onnx.ml 5 applies to its scores, by the number of its post_transform.
#
# Versions: onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: the schema numbers SOFTMAX as 1 and LOGISTIC as 2. ONNX Runtime applies a logistic function for 1, and a
# softmax for 2; onnx.reference applies none, whatever the number. The operators of older versions, whose transforms have
# names, agree with the schema.
# Output seen: "scores [2.0, -1.0]; 1 (SOFTMAX): runtime [0.881, 0.269], reference [2.0, -1.0];
# 2 (LOGISTIC): runtime [0.953, 0.047], reference [2.0, -1.0]".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, defs, helper
from onnx.reference import ReferenceEvaluator

FLOAT = TensorProto.FLOAT
ROW = {"x": np.array([[1]], np.float32)}


def vector(name, values, kind=FLOAT):
    return helper.make_tensor(name, kind, [len(values)], values)


def model(transform):
    """Two trees of a node; each adds to a target of its own."""
    trees = helper.make_node(
        "TreeEnsemble",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=2,
        aggregate_function=1,
        post_transform=transform,
        tree_roots=[0, 1],
        nodes_featureids=[0, 0],
        nodes_splits=vector("splits", [0.0, 0.0]),
        nodes_modes=vector("modes", [0, 0], TensorProto.UINT8),
        nodes_truenodeids=[0, 2],
        nodes_falsenodeids=[1, 3],
        nodes_trueleafs=[1, 1],
        nodes_falseleafs=[1, 1],
        leaf_targetids=[0, 0, 1, 1],
        leaf_weights=vector("weights", [5.0, 2.0, 5.0, -1.0]),
    )
    given = helper.make_tensor_value_info("x", FLOAT, [1, 1])
    result = helper.make_tensor_value_info("y", FLOAT, [1, 2])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 5)]
    return helper.make_model(helper.make_graph([trees], "g", [given], [result]), opset_imports=opsets, ir_version=10)


def results(transform):
    session = onnxruntime.InferenceSession(model(transform).SerializeToString(), providers=["CPUExecutionProvider"])
    both = session.run(None, ROW)[0], ReferenceEvaluator(model(transform)).run(None, ROW)[0]
    return tuple([round(float(number), 3) for number in each[0]] for each in both)


text = defs.get_schema("TreeEnsemble", 5, "ai.onnx.ml").attributes["post_transform"].description
assert "'SOFTMAX' (1), 'LOGISTIC' (2)" in text
none, first, second = (results(transform) for transform in range(3))
print(f"scores {none[0]}", end="")
print(f"; 1 (SOFTMAX): runtime {first[0]}, reference {first[1]}", end="")
print(f"; 2 (LOGISTIC): runtime {second[0]}, reference {second[1]}")
assert none == ([2.0, -1.0], [2.0, -1.0])
assert first == ([0.881, 0.269], [2.0, -1.0])
assert second == ([0.953, 0.047], [2.0, -1.0])
PYTHON
