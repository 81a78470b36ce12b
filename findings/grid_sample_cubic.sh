#!/usr/bin/env bash
# MNN and ncnn sample by lines where an ONNX model asks for cubic interpolation.
#
# Versions: mnn 3.6.1, pnnx 20261020, ncnn 1.0.20261020, onnx 1.23.2, on x86-64.
# Behaviour: GridSample's modes are called linear and cubic since opset 20, bilinear and bicubic before. pnnx, which
# converts for ncnn, knows the older names, and takes the newer cubic for bilinear. MNN takes either name of the cubic
# mode for bilinear. Neither says so.
# Output seen: "apart from ONNX's reference: linear of opset 20: MNN 0e+00, ncnn 2e-05; cubic 11.3 and 11.3; bicubic of
# opset 16 11.3 and 0.0; of MNN's cubic from its linear 0, of ncnn's 0".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-deps pnnx==20261020
"$folder/venv/bin/pip" install --quiet mnn==3.6.1 ncnn==1.0.20261020 onnx==1.23.2 numpy==2.4.6

cd "$folder"
cat > sample.py <<'PYTHON'
import importlib.util
import pathlib
import subprocess

import _tools
import MNN
import ncnn
import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

PNNX = pathlib.Path(importlib.util.find_spec("pnnx").origin).with_name("pnnx")
image = np.arange(25, dtype=np.float32).reshape(1, 1, 5, 5) ** 2
grid = np.array([[[[0.1, 0.3], [-0.2, 0.5]]]], np.float32)


def by_mnn():
    _tools.mnnconvert(["mnnconvert", "-f", "ONNX", "--modelFile", "m.onnx", "--MNNModel", "m.mnn", "--bizCode", "m"])
    given = []
    for array in (image, grid):
        given.append(MNN.expr.placeholder(list(array.shape), MNN.expr.NCHW, MNN.numpy.float32))
        given[-1].write(array)
    (result,) = MNN.nn.load_module_from_file("m.mnn", ["x", "grid"], ["y"]).forward(given)
    return np.array(MNN.expr.convert(result, MNN.expr.NCHW).read()).ravel()


def by_ncnn():
    subprocess.run([PNNX, "m.onnx"], check=True, capture_output=True)
    net = ncnn.Net()
    assert net.load_param("m.ncnn.param") == 0 and net.load_model("m.ncnn.bin") == 0
    extractor = net.create_extractor()
    for index, array in enumerate((image, grid)):
        extractor.input(f"in{index}", ncnn.Mat(array[0]).clone())
    return np.array(extractor.extract("out0")[1]).ravel()


def model(mode, version):
    node = helper.make_node("GridSample", ["x", "grid"], ["y"], mode=mode, align_corners=1)
    shapes = {"x": image.shape, "grid": grid.shape, "y": [1, 1, 1, 2]}
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    graph = helper.make_graph([node], "g", values[:2], values[2:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)


def sampled(mode, version):
    """The two samples by ONNX's reference, which knows the newer names alone, by MNN and by ncnn."""
    onnx.save(model(mode, version), "m.onnx")
    newer = ReferenceEvaluator(model(mode.removeprefix("bi"), 20))
    return newer.run(None, {"x": image, "grid": grid})[0].ravel(), by_mnn(), by_ncnn()


def apart(one, other):
    return float(np.abs(one - other).max())


linear, cubic, older = sampled("linear", 20), sampled("cubic", 20), sampled("bicubic", 16)
lines, curves, old = ([apart(found, right) for found in others] for right, *others in (linear, cubic, older))
same = [apart(cubic[index], linear[index]) for index in (1, 2)]
print(
    f"apart from ONNX's reference: linear of opset 20: MNN {lines[0]:.0e}, ncnn {lines[1]:.0e}; cubic {curves[0]:.1f} "
    f"and {curves[1]:.1f}; bicubic of opset 16 {old[0]:.1f} and {old[1]:.1f}; of MNN's cubic from its linear "
    f"{same[0]:.0f}, of ncnn's {same[1]:.0f}"
)
assert max(lines) < 1e-2 and old[1] < 1e-2
assert min(*curves, old[0]) > 5 and same == [0, 0]
PYTHON
"$folder/venv/bin/python" sample.py | grep '^apart'
