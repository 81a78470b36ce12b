#!/usr/bin/env bash
# ndonnx multiplies up by logarithms: negative numbers become NaN, and integers lose one.
#
# Versions: ndonnx 0.23.0, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: ndonnx builds ONNX models by the functions of the Python array API standard (2024.12), whose
# cumulative_prod multiplies the elements so far. ndonnx exports the exponential of summed logarithms: of one negative
# number all later products are NaN, and products of integers, computed in float64 and cut off, may be one too small.
# Its logaddexp overflows where the standard's function is there not to. Nothing is said; numpy implements the same
# standard.
# Output seen: "products of [-1, 2, -3]: numpy [-1, -2, 6], ndonnx [nan, nan, nan]; of integers 1 to 6: [1, 2, 6, 24,
# 120, 720], ndonnx [1, 2, 6, 23, 119, 720]; logaddexp of 1000 and 1000: 1000.69, ndonnx inf".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet ndonnx==0.23.0 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import ndonnx as ndx
import numpy as np
import onnxruntime


def exported(function, *arrays):
    """The result of the model that ndonnx builds, in ONNX Runtime."""
    names = [f"x{index}" for index in range(len(arrays))]
    inputs = [ndx.argument(shape=array.shape, dtype=getattr(ndx, array.dtype.name)) for array in arrays]
    model = ndx.build(dict(zip(names, inputs, strict=True)), {"y": function(*inputs)})
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip(names, arrays, strict=True)))[0]


signed, counted, large = np.array([-1, 2, -3], np.float32), np.arange(1, 7), np.array([1000.0])
products, integers = (exported(ndx.cumulative_prod, array) for array in (signed, counted))
total, right = exported(ndx.logaddexp, large, large)[0], np.logaddexp(large, large)[0]
print(
    f"products of [-1, 2, -3]: numpy {np.cumulative_prod(signed).astype(int).tolist()}, ndonnx {products.tolist()}; of "
    f"integers 1 to 6: {np.cumulative_prod(counted).tolist()}, ndonnx {integers.tolist()}; logaddexp of 1000 and 1000: "
    f"{right:.2f}, ndonnx {total}"
)
assert np.isnan(products).all()
assert integers.tolist() == [1, 2, 6, 23, 119, 720]
assert np.isinf(total) and right < 1001
PYTHON
