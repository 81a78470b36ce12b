#!/usr/bin/env bash
# MNN's converter command installs a package by the first pip that it finds.
#
# Versions: mnn 3.6.1, onnx 1.23.2, on Linux.
# Behaviour: mnnconvert, which the package mnn puts beside Python, begins by calling "pip install -U" for a package that
# reports usage, which mnn does not list among its requirements. The pip is the first one in PATH: if the environment is
# not activated, that of another Python, whose packages it may replace; the environment of mnn stays without. If that
# fails, the model is converted all the same. The extension module behind the command installs nothing.
# Output seen: "pip was called with 'install -U aliyun-log-python-sdk'; converted: yes; by the extension module: called
# no, converted yes".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet mnn==3.6.1 onnx==1.23.2 numpy==2.4.6

# A pip that writes down what it is asked for and installs nothing.
mkdir "$folder/first"
printf '#!/bin/sh\necho "$*" >> "%s/asked"\nexit 1\n' "$folder" > "$folder/first/pip"
chmod +x "$folder/first/pip"

cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import onnx
from onnx import TensorProto, helper

values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "m.onnx")
PYTHON
options=(-f ONNX --modelFile m.onnx --MNNModel m.mnn --bizCode m)
PATH="$folder/first:$PATH" "$folder/venv/bin/mnnconvert" "${options[@]}" > log 2>&1
asked=$(sort -u asked)
test -s m.mnn && converted=yes
rm m.mnn asked
PATH="$folder/first:$PATH" "$folder/venv/bin/python" - "${options[@]}" > log 2>&1 <<'PYTHON'
import sys

import _tools

_tools.mnnconvert(["mnnconvert", *sys.argv[1:]])
PYTHON
called=$(test -e asked && echo yes || echo no)
also=$(test -s m.mnn && echo yes || echo no)
echo "pip was called with '$asked'; converted: $converted; by the extension module: called $called, converted $also"
test "$asked/$converted/$called/$also" = "install -U aliyun-log-python-sdk/yes/no/yes"
