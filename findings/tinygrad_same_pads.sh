#!/usr/bin/env bash
# tinygrad crops images where an ONNX model pads by SAME_UPPER with large strides.
#
# Versions: tinygrad 0.14.0, onnx 1.23.2, numpy 2.4.6.
# Behaviour: auto_pad asks for as many pixels as the windows need (Conv and the pools, all versions), which is none
# where strides are larger than kernels. tinygrad takes the negative number that the formula gives, and cuts that off:
# windows begin a pixel too late, and the numbers are others'. It also computes the pads without dilations, so that a
# dilated convolution's image is smaller than the text says.
# Output seen: "every third of [0, 1, 2, 3, 4]: [0, 3], tinygrad [1, 4]; dilated by 2 of 7 columns: 7 by the text,
# tinygrad 5; strides of 1 the same".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet tinygrad==0.14.0 onnx==1.23.2 numpy==2.4.6

cd "$folder"
# The device that runs in Python needs no compiler.
DEV=PYTHON "$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tinygrad import Tensor
from tinygrad.nn.onnx import OnnxRunner


def convolved(columns, taps, **attributes):
    """The numbers from 0 on, convolved with ones by tinygrad, and how many results ONNX infers."""
    x = np.arange(columns, dtype=np.float32).reshape(1, 1, 1, columns)
    kept = [numpy_helper.from_array(np.ones((1, 1, 1, taps), np.float32), "w")]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=[1, taps], auto_pad="SAME_UPPER", **attributes)
    graph = helper.make_graph([node], "g", [given], [result], kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, "m.onnx")
    inferred = onnx.shape_inference.infer_shapes(model).graph.output[0].type.tensor_type.shape.dim[-1].dim_value
    return OnnxRunner("m.onnx")({"x": Tensor(x)})["y"].numpy().ravel().astype(int).tolist(), inferred


wrong, count = convolved(5, 1, strides=[1, 3])
dilated, columns = convolved(7, 3, dilations=[1, 2])
plain, _ = convolved(4, 2, strides=[1, 1])
right = [0, 1, 2, 3, 4][::3]
expected = [0 + 1, 1 + 2, 2 + 3, 3 + 0]
print(
    f"every third of [0, 1, 2, 3, 4]: {right}, tinygrad {wrong}; dilated by 2 of 7 columns: {columns} by the text, "
    f"tinygrad {len(dilated)}; strides of 1 {'the same' if plain == expected else plain}"
)
assert count == len(right) and wrong == [1, 4]
assert columns == 7 and len(dilated) == 5 and plain == expected
PYTHON
