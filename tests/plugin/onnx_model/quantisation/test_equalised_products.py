"""Products keep every bit when sizes of channels move to weights."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto

from sartor.errors import UsageError
from sartor.onnx_model.graphs.infer import infer_shapes
from sartor.onnx_model.quantisation.equalised_products import equalise_products, is_exact, products_by_tensor
from sartor.reference.trusted.reference_model import ReferenceModel
from tests.plugin.onnx_model.builders import FLOAT, Array, model, node

RANDOM = np.random.default_rng(1)
WEIGHT, OTHER = (RANDOM.standard_normal((7, 5)).astype(np.float32) for _ in range(2))
X = RANDOM.standard_normal((3, 7)).astype(np.float32)
EXPONENTS = (3, -2, 0, 16, -16, 1, 5)


def _model() -> ModelProto:
    """Two products share a weight, one of them and a Gemm a tensor, which a sum reads too."""
    nodes = [
        node("Relu", ["x"], ["read"], name="relu"),
        node("Tanh", ["x"], ["apart"], name="tanh"),
        node("MatMul", ["read", "w"], ["a"], name="product"),
        node("MatMul", ["apart", "w"], ["b"], name="other"),
        node("Gemm", ["read", "turned", "bias"], ["c"], name="gemm", transB=1),
        node("ReduceSum", ["read", "axes"], ["d"], name="total", keepdims=1),
        node("Sum", ["a", "b", "c", "d"], ["y"], name="sum"),
        node("MatMul", ["x", "w"], ["z"], name="of_input"),
    ]
    constants = {"w": WEIGHT, "turned": np.ascontiguousarray(OTHER.T), "axes": np.array([1])}
    built = model(nodes, [("x", (3, 7), FLOAT)], ["y", "z"], {**constants, "bias": OTHER[0]})
    infer_shapes(built)
    return built


def _outputs(built: ModelProto) -> list[Array]:
    return list(ReferenceModel(built.SerializeToString(), threads=1)({"x": X}))


def test_products_by_weights_are_found_by_what_they_read() -> None:
    found = {tensor: [each.name for each in nodes] for tensor, nodes in products_by_tensor(_model()).items()}
    assert found == {"read": ["product", "gemm"], "apart": ["other"]}


def test_results_keep_their_bits() -> None:
    plain, equalised = _model(), _model()
    assert equalise_products(equalised, {"read": EXPONENTS, "gone": (1,)}) == ("product", "gemm")
    infer_shapes(equalised)
    for found, expected in zip(_outputs(equalised), _outputs(plain), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert len(equalised.graph.node) == len(plain.graph.node) + 1
    names = {initializer.name for initializer in equalised.graph.initializer}
    assert "w" in names, "another product still reads it"
    assert "turned" not in names


@pytest.mark.parametrize("exponents", [(), (1, 2)])
def test_exponents_of_another_model_are_refused(exponents: tuple[int, ...]) -> None:
    said = (
        f"the plan is for another model: it has {len(exponents)} exponents for tensor 'read', .* 7 channels; tune again"
    )
    with pytest.raises(UsageError, match=said):
        equalise_products(_model(), {"read": exponents})


def test_wrong_exponents_are_seen() -> None:
    """The comparison above notices a weight that is scaled along the other axis, or not at all."""
    equalised = _model()
    equalise_products(equalised, {"read": EXPONENTS})
    (product,) = (each for each in equalised.graph.node if each.name == "product")
    product.input[1] = "w"
    assert not np.array_equal(_outputs(equalised)[0], _outputs(_model())[0])


@pytest.mark.parametrize(("size", "exponent", "kept"), [(1.0, 16, True), (2.0**120, 16, False), (1e-38, -16, False)])
def test_what_would_lose_bits_is_told(size: float, exponent: int, kept: bool) -> None:
    product, _, *_ = (each for nodes in products_by_tensor(_model()).values() for each in nodes)
    assert is_exact(product, WEIGHT * np.float32(size), (exponent,) * 7) == kept
