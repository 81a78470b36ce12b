#!/usr/bin/env bash
# onnxoptimizer pads other dimensions where an ONNX Pad names its axes.
#
# Versions: onnxoptimizer 0.4.2, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: Pad has an input for axes since version 18; its pads are those of these axes alone, in their order. The
# default passes move the pads of a Pad before a Conv into the Conv, and read them as those of all dimensions: with rows
# named last, columns are padded as rows, and with images left out, other rows and columns are. The checker accepts the
# result, whose images have another shape. ONNX Runtime keeps to the axes.
# Output seen: "a column on either side of 2 x 2 pixels: axes named in order 2 x 4, optimised 2 x 4; rows last 2 x 4,
# optimised 4 x 2; without images 2 x 4, optimised 3 x 3".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnxoptimizer==0.4.2 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnxoptimizer
import onnxruntime
from onnx import TensorProto, helper, numpy_helper


def sizes(axes, pads):
    """The sizes of the padded image, by the model and by the optimised one."""
    nodes = [
        helper.make_node("Pad", ["x", "pads", "", "axes"], ["padded"]),
        helper.make_node("Conv", ["padded", "w"], ["y"], pads=[0, 0, 0, 0]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 2, 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, None, None])
    kept = {"axes": np.array(axes), "pads": np.array(pads), "w": np.ones((1, 1, 1, 1), np.float32)}
    constants = [numpy_helper.from_array(array, name) for name, array in kept.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    found = []
    for candidate in (model, onnxoptimizer.optimize(model)):
        onnx.checker.check_model(candidate)
        session = onnxruntime.InferenceSession(candidate.SerializeToString(), providers=["CPUExecutionProvider"])
        shape = session.run(None, {"x": np.ones((1, 1, 2, 2), np.float32)})[0].shape
        found.append(f"{shape[2]} x {shape[3]}")
    return found


ordered = sizes([0, 1, 2, 3], [0, 0, 0, 1, 0, 0, 0, 1])
swapped = sizes([0, 1, 3, 2], [0, 0, 1, 0, 0, 0, 1, 0])
fewer = sizes([1, 2, 3], [0, 0, 1, 0, 0, 1])
print(
    f"a column on either side of 2 x 2 pixels: axes named in order {ordered[0]}, optimised {ordered[1]}; rows last "
    f"{swapped[0]}, optimised {swapped[1]}; without images {fewer[0]}, optimised {fewer[1]}"
)
assert ordered == ["2 x 4", "2 x 4"]
assert swapped == ["2 x 4", "4 x 2"]
assert fewer == ["2 x 4", "3 x 3"]
PYTHON
