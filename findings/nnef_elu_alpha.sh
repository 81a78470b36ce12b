#!/usr/bin/env bash
# Khronos' converter to NNEF drops the parameters of Elu and Selu.
#
# Versions: nnef-tools 1.0.11, nnef 1.0.10, onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: Elu has a factor alpha and Selu alpha and gamma. NNEF's elu and selu have parameters of the same names, and
# the converter writes neither: the file holds "elu(x)" and "selu(x)", of which the defaults are 1, 1.6733 and 1.0507.
# LeakyRelu keeps its alpha.
# Output seen: "Elu of alpha 0.5: elu(x); Selu of alpha 1 and gamma 2: selu(x); LeakyRelu of alpha 0.5: leaky_relu(x,
# alpha = 0.5)".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet nnef-tools==1.0.11 nnef==1.0.10 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import subprocess
import sys
from pathlib import Path

import onnx
from onnx import TensorProto, helper


def converted(operator, **attributes):
    """The function that the converter writes."""
    given, result = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"], **attributes)], "g", [given], [result])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7), "model.onnx")
    paths = ["--input-model", "model.onnx", "--output-model", "model.nnef"]
    formats = ["--input-format", "onnx", "--output-format", "nnef", "--keep-io-names"]
    subprocess.run([sys.executable, "-m", "nnef_tools.convert", *paths, *formats], check=True, capture_output=True)
    return Path("model.nnef/graph.nnef").read_text().split("y = ")[1].split(";")[0]


elu, selu = converted("Elu", alpha=0.5), converted("Selu", alpha=1.0, gamma=2.0)
leaky = converted("LeakyRelu", alpha=0.5)
print(f"Elu of alpha 0.5: {elu}; Selu of alpha 1 and gamma 2: {selu}; LeakyRelu of alpha 0.5: {leaky}")
assert (elu, selu, leaky) == ("elu(x)", "selu(x)", "leaky_relu(x, alpha = 0.5)")
PYTHON
