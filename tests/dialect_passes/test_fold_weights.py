"""What depends on weights alone is computed once, unless it would grow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import ModelProto, TensorProto

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.mlir.iree_compiler import ir, run_passes
from sartor.dialect_passes.constants import fold_narrowed
from sartor.dialect_passes.fold_weights import fold_weights
from sartor.frontend.layering import evaluate
from sartor.frontend.onnx_import import import_model
from tests.tiny_models import Builder, residual


def transposed() -> ModelProto:
    b = Builder()
    b.op("MatMul", "y", "x", b.op("Transpose", "t", b.op("Exp", "exp", b.weight(6, 8)), perm=[1, 0]))
    return b.model([("x", (4, 8))], [("y", (4, 6))])


def refuse(text: str, arrays: Sequence[np.ndarray], types: Sequence[TensorType]) -> list[np.ndarray]:
    raise AssertionError(text)


def imported(model: ModelProto) -> tuple[ir.Module, dict[str, np.ndarray]]:
    found = import_model(model)
    return ir.Module.parse(found.bytecode, ir.Context()), found.weights


def test_a_transposed_weight_becomes_a_weight() -> None:
    module, weights = imported(transposed())
    (original,) = weights.values()
    fold_weights(module, weights, evaluate)
    folded = [weight for weight in weights.values() if weight is not original]
    assert any(np.allclose(each, np.exp(original).T, rtol=1e-5) for each in folded if each.shape == (8, 6))
    run_passes(module, "builtin.module(util.func(canonicalize,cse))")
    text = str(module)
    assert "math.exp" not in text
    assert "linalg.transpose" not in text


def test_the_padding_of_an_f16_maximum_is_rounded_at_once() -> None:
    b = Builder()
    b.op("MaxPool", "y", "x", kernel_shape=[5], pads=[2, 0])
    module, _ = imported(b.model([("x", (1, 2, 7))], [("y", (1, 2, 5))], TensorProto.FLOAT16))
    assert "arith.truncf" in str(module)
    fold_narrowed(module)
    run_passes(module, "builtin.module(util.func(canonicalize))")
    assert "f32" not in str(module)
    assert "0xFC00" in str(module)


def test_nothing_is_evaluated_where_nothing_is_constant() -> None:
    b = Builder()
    b.op("Relu", "y", "x")
    module, weights = imported(b.model([("x", (2, 3))], [("y", (2, 3))]))

    fold_weights(module, weights, refuse)
    assert weights == {}


def test_a_weight_that_would_grow_stays_small() -> None:
    b = Builder()
    shape = b.constant(np.array([64, 64, 32], np.int64))
    b.op("Add", "y", "x", b.op("Expand", "big", b.weight(32), shape))
    module, weights = imported(b.model([("x", (64, 64, 32))], [("y", (64, 64, 32))]))
    fold_weights(module, weights, evaluate)
    assert max(weight.size for weight in weights.values()) == 32


def test_a_bias_is_not_repeated_over_a_small_image() -> None:
    module, weights = imported(residual())
    fold_weights(module, weights, evaluate)
    assert {weight.shape for weight in weights.values()} == {(16, 16, 3, 3), (16,)}


def test_a_small_weight_may_grow_by_its_type() -> None:
    b = Builder()
    small = b.op("Cast", "cast", b.constant(np.arange(256, dtype=np.int8)), to=TensorProto.FLOAT)
    b.op("Add", "y", "x", small)
    module, weights = imported(b.model([("x", (256,))], [("y", (256,))]))
    fold_weights(module, weights, evaluate)
    assert any(weight.dtype == np.float32 for weight in weights.values())


def test_folding_gives_every_dense_constant_a_name() -> None:
    b = Builder()
    b.op("Add", "y", "x", b.constant(np.arange(6, dtype=np.float32)))
    module, weights = imported(b.model([("x", (6,))], [("y", (6,))]))
    fold_weights(module, weights, evaluate)
    assert any(np.array_equal(weight, np.arange(6)) for weight in weights.values())
    assert "dense<[" not in str(module)


def test_what_is_only_moved_is_neither_compiled_nor_copied() -> None:
    b = Builder()
    turned = b.op("Transpose", "t", b.weight(6, 8), perm=[1, 0])
    b.op("MatMul", "y", "x", b.op("Reshape", "r", turned, b.constant(np.array([4, 12], np.int64))))
    b.op("MatMul", "z", "x2", turned)
    inputs = [("x", (2, 4)), ("x2", (2, 8))]
    module, weights = imported(b.model(inputs, [("y", (2, 12)), ("z", (2, 6))]))
    original = next(array for array in weights.values() if array.shape == (6, 8))
    fold_weights(module, weights, refuse)
    found = {array.shape: array for array in weights.values()}
    np.testing.assert_array_equal(found[4, 12], original.T.reshape(4, 12))
    np.testing.assert_array_equal(found[8, 6], original.T)
    assert np.shares_memory(found[8, 6], original)


def test_outputs_are_folded_however_large_they_become() -> None:
    """No layer computes them; the same value is not folded where a layer reads it."""
    b = Builder()
    large = b.op("Expand", "large", b.weight(1000, 1), b.constant(np.array([1000, 1000])))
    b.op("Relu", "y", "x")
    module, weights = imported(b.model([("x", (4,))], [("y", (4,)), (large, (1000, 1000))]))
    fold_weights(module, weights, evaluate)
    assert (1000, 1000) in [weight.shape for weight in weights.values()]
