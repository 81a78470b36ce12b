#!/usr/bin/env bash
# onnx2torch leaves out the output_shape of a ConvTranspose, whose result is larger then.
#
# Versions: onnx2torch 1.5.15, torch 2.14.1, onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: output_shape says which size a transposed convolution gives; the padding follows from it. onnx2torch reads
# such a node without a warning and pads nothing: 5 pixels with a stride of 2 and a kernel of 3 give 11 where the model
# says 9. The same padding as pads is right.
# Output seen: "output_shape of 9 by 9: ONNX Runtime (1, 2, 9, 9), onnx2torch (1, 2, 11, 11); by pads: ONNX Runtime
# (1, 2, 9, 9), onnx2torch (1, 2, 9, 9), apart by less than 1e-5".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx2torch==1.5.15 onnx==1.23.2 onnxruntime==1.32.0 torch==2.14.1 torchvision==0.29.1 numpy==2.4.6

cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx2torch import convert

random = np.random.default_rng(0)
x = random.standard_normal((1, 3, 5, 5)).astype(np.float32)
kernel = random.standard_normal((3, 2, 3, 3)).astype(np.float32)


def results(**attributes):
    """What ONNX Runtime and onnx2torch compute."""
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2], **attributes)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, None, None])
    graph = helper.make_graph([node], "g", [given], [result], [numpy_helper.from_array(kernel, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with torch.no_grad():
        return session.run(None, {"x": x})[0], convert(model)(torch.from_numpy(x)).numpy()


sized, padded = results(output_shape=[9, 9]), results(pads=[1, 1, 1, 1])
print(
    f"output_shape of 9 by 9: ONNX Runtime {sized[0].shape}, onnx2torch {sized[1].shape}; by pads: ONNX Runtime "
    f"{padded[0].shape}, onnx2torch {padded[1].shape}, apart by less than 1e-5"
)
assert sized[0].shape == (1, 2, 9, 9) and sized[1].shape == (1, 2, 11, 11)
assert np.abs(padded[0] - padded[1]).max() < 1e-5
PYTHON
