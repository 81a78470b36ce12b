#!/usr/bin/env bash
# MNN pads after the image where an ONNX model asks for pads before it.
#
# Versions: mnn 3.6.1, onnx 1.23.2, on x86-64.
# Behaviour: of auto_pad="SAME_LOWER" (all versions of Conv and the pools) the odd pixel of an uneven padding comes
# before the image, of SAME_UPPER after it. MNN treats both alike, as SAME_UPPER, without a word: results are shifted by
# a pixel.
# Output seen: "differences of [1, 4, 9, 16] padded by one: SAME_LOWER [1, 3, 5, 7], MNN [3, 5, 7, -16]; SAME_UPPER [3,
# 5, 7, -16] and [3, 5, 7, -16]; largest of two SAME_LOWER [1, 4, 9, 16], MNN [4, 9, 16, 16]".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet mnn==3.6.1 onnx==1.23.2 numpy==2.4.6

cd "$folder"
cat > same.py <<'PYTHON'
import _tools
import MNN
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

x = np.array([1, 4, 9, 16], np.float32).reshape(1, 1, 1, 4)


def windows(operator, side, constants=()):
    """The results of windows of two pixels by MNN."""
    kept = [numpy_helper.from_array(array, name) for name, array in constants]
    sizes = {"kernel_shape": [1, 2], "strides": [1, 1]}
    node = helper.make_node(operator, ["x", *(name for name, _ in constants)], ["y"], auto_pad=side, **sizes)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in ("x", "y")]
    graph = helper.make_graph([node], "g", values[:1], values[1:], kept)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "m.onnx")
    _tools.mnnconvert(["mnnconvert", "-f", "ONNX", "--modelFile", "m.onnx", "--MNNModel", "m.mnn", "--bizCode", "m"])
    given = MNN.expr.placeholder(list(x.shape), MNN.expr.NCHW, MNN.numpy.float32)
    given.write(x)
    (result,) = MNN.nn.load_module_from_file("m.mnn", ["x"], ["y"]).forward([given])
    return np.array(MNN.expr.convert(result, MNN.expr.NCHW).read()).ravel().round().astype(int).tolist()


row = x.ravel().astype(int)
lower = (row - np.concatenate([[0], row[:-1]])).tolist()
upper = (np.concatenate([row[1:], [0]]) - row).tolist()
difference = [("w", np.array([-1, 1], np.float32).reshape(1, 1, 1, 2))]
wrong, right = windows("Conv", "SAME_LOWER", difference), windows("Conv", "SAME_UPPER", difference)
largest = windows("MaxPool", "SAME_LOWER")
print(
    f"differences of [1, 4, 9, 16] padded by one: SAME_LOWER {lower}, MNN {wrong}; SAME_UPPER {upper} and {right}; "
    f"largest of two SAME_LOWER {row.tolist()}, MNN {largest}"
)
assert right == upper == wrong != lower
assert largest == [4, 9, 16, 16]
PYTHON
"$folder/venv/bin/python" same.py | grep '^differences'
