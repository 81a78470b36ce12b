#!/usr/bin/env bash
# onnx2pytorch resizes by PyTorch's places and coefficients, whatever the model's Resize says.
#
# Versions: onnx2pytorch 0.6.0, torch 2.14.1, onnx 1.23.2, onnxruntime 1.32.0, on x86-64.
# Behaviour: of coordinate_transformation_mode the converter tells "align_corners" from all others; "asymmetric", which
# exporters of older versions wrote, is computed as half_pixel is, so that each pixel of a linear resize is another number.
# cubic_coeff_a and nearest_mode are not read: a cubic kernel has PyTorch's -0.75, and the nearest pixel is that below,
# also by the operator's default, round_prefer_floor of half pixels, where the scale is no whole number. The model loads
# and runs without a warning. By a whole scale the defaults agree.
# Output seen: "0 to 30 by 2, asymmetric linear: [0, 5, 10, 15, 20, 25, 30, 30], onnx2pytorch [0.0, 2.5, 7.5, 12.5, 17.5,
# 22.5, 27.5, 30.0]; coefficient -0.5: 0.59 apart; nearest by 1.75: [0, 0, 10, 10, 20, 30, 30] and [0, 0, 10, 10, 20, 20,
# 30]; defaults by 2: 0.0 apart".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx2pytorch==0.6.0 torch==2.14.1 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx import helper, numpy_helper
from onnx2pytorch import ConvertModel

row = 10 * np.arange(4, dtype=np.float32).reshape(1, 1, 1, 4)


def both(scale, **attributes):
    """A row resized by ONNX Runtime, and by onnx2pytorch."""
    constants = {"roi": np.zeros(0, np.float32), "scales": np.array([1, 1, 1, scale], np.float32)}
    graph = helper.make_graph(
        [helper.make_node("Resize", ["x", *constants], ["y"], **attributes)],
        "resize",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, row.shape)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    onnx.checker.check_model(model)
    (right,) = ort.InferenceSession(model.SerializeToString()).run(None, {"x": row})
    return right.ravel(), ConvertModel(model)(torch.from_numpy(row)).detach().numpy().ravel()


linear = both(2, mode="linear", coordinate_transformation_mode="asymmetric")
cubic = both(2, mode="cubic", cubic_coeff_a=-0.5)
nearest = both(1.75, mode="nearest")
usual = [both(2, mode=mode) for mode in ("linear", "cubic", "nearest")]
apart = max(float(np.abs(right - found).max()) for right, found in usual)
print(
    f"0 to 30 by 2, asymmetric linear: {linear[0].round().astype(int).tolist()}, onnx2pytorch {linear[1].tolist()}; "
    f"coefficient -0.5: {np.abs(cubic[0] - cubic[1]).max():.2f} apart; nearest by 1.75: "
    f"{nearest[0].astype(int).tolist()} and {nearest[1].astype(int).tolist()}; defaults by 2: {apart:.1f} apart"
)
assert apart < 1e-4
assert np.allclose(linear[1], both(2, mode="linear")[0])
assert np.allclose(cubic[1], both(2, mode="cubic")[0], atol=1e-4) and np.abs(cubic[0] - cubic[1]).max() > 0.3
assert (nearest[0] != nearest[1]).any() and np.array_equal(nearest[1], row.ravel()[(np.arange(7) / 1.75).astype(int)])
PYTHON
