#!/usr/bin/env bash
# onnxscript's optimiser takes a product of matrices made of batches for products in the batches.
#
# Versions: onnxscript 0.7.2, onnx 1.23.2, onnxruntime 1.32.0.
# Behaviour: a default rule of onnxscript.optimizer drops the Reshapes around a MatMul where the operands, as they were,
# have a product of the shape that the last Reshape gives. It does not look at the shapes in between: four numbers that
# are laid out as a matrix of 2 x 2, multiplied and laid back become four products of single numbers. Reshape and MatMul
# (all versions) leave no doubt, and ONNX Runtime agrees with ONNX's reference. Where the shapes in between only join
# dimensions the rule is right.
# Output seen: "[1, 2, 3, 4] as 2 x 2, times itself: [7, 10, 15, 22], optimised [1, 4, 9, 16]; products of 6 x 10 by 10
# x 14 numbers 0 apart from the reference, optimised 7".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnxscript==0.7.2 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6

"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import onnxruntime
import onnxscript.optimizer
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator


def results(a, b, laid_a, laid_b, shape):
    """The product by ONNX's reference, by ONNX Runtime, and of the optimised model."""
    nodes = [
        helper.make_node("Reshape", ["a", "laid_a"], ["matrix_a"]),
        helper.make_node("Reshape", ["b", "laid_b"], ["matrix_b"]),
        helper.make_node("MatMul", ["matrix_a", "matrix_b"], ["product"]),
        helper.make_node("Reshape", ["product", "shape"], ["y"]),
    ]
    sizes = {"a": a.shape, "b": b.shape, "y": shape}
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, size) for name, size in sizes.items()]
    kept = {"laid_a": laid_a, "laid_b": laid_b, "shape": shape}
    constants = [numpy_helper.from_array(np.array(sizes), name) for name, sizes in kept.items()]
    graph = helper.make_graph(nodes, "g", values[:2], values[2:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    found = [ReferenceEvaluator(model).run(None, {"a": a, "b": b})[0]]
    for candidate in (model, onnxscript.optimizer.optimize(model)):
        session = onnxruntime.InferenceSession(candidate.SerializeToString(), providers=["CPUExecutionProvider"])
        found.append(session.run(None, {"a": a, "b": b})[0])
    return found


numbers = np.arange(1, 5, dtype=np.float32).reshape(4, 1, 1)
reference, right, wrong = results(numbers, numbers, (2, 2), (2, 2), (4, 1, 1))
drawn = np.random.default_rng(0)
a, b = drawn.normal(size=(4, 3, 5)).astype(np.float32), drawn.normal(size=(4, 5, 7)).astype(np.float32)
product, same, other = results(a, b, (6, 10), (10, 14), (4, 3, 7))
apart, beyond = np.abs(product - same).max(), np.abs(product - other).max()
print(
    f"[1, 2, 3, 4] as 2 x 2, times itself: {right.ravel().astype(int).tolist()}, optimised "
    f"{wrong.ravel().astype(int).tolist()}; products of 6 x 10 by 10 x 14 numbers {apart:.0f} apart from the "
    f"reference, optimised {beyond:.0f}"
)
assert reference.ravel().tolist() == right.ravel().tolist() == [7, 10, 15, 22]
assert wrong.ravel().tolist() == [1, 4, 9, 16]
assert apart < 1e-5 and beyond > 5
PYTHON
