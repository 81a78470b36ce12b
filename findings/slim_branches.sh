#!/usr/bin/env bash
# onnxslim leaves a branch of If without a value that it reads.
#
# Versions: onnxslim 0.1.98, onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: ONNX's own expansion of AffineGrid has several Ifs by one condition. onnxslim folds the condition, moves
# a branch's nodes into the graph under new names, and leaves a node that reads a name which no node gives. slim
# returns the model without an error; onnx.checker and ONNX Runtime refuse it. The example with align_corners is not
# concerned.
# Output seen: "AffineGrid in two dimensions, expanded: runs; slimmed: onnx.checker refuses, ONNX Runtime refuses".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnxslim==0.1.98 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnxruntime
import onnxslim
from onnx.backend.test.case.node import collect_testcases

(case,) = (case for case in collect_testcases("AffineGrid") if case.name == "test_affine_grid_2d_expanded")
given, expected = case.data_sets[0]


def run(model):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {value.name: array for value, array in zip(session.get_inputs(), given)})[0]


def verdict(check, model):
    try:
        check(model)
    except Exception:
        return "refuses"
    return "accepts"


assert np.allclose(run(case.model), expected[0], atol=1e-5)
slimmed = onnxslim.slim(case.model)
checker, runtime = verdict(onnx.checker.check_model, slimmed), verdict(run, slimmed)
print(f"AffineGrid in two dimensions, expanded: runs; slimmed: onnx.checker {checker}, ONNX Runtime {runtime}")
assert (checker, runtime) == ("refuses", "refuses")
PYTHON
