"""Tensors without elements, as inputs and inside: computed as ONNX Runtime does, or refused with the node's name."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, helper, numpy_helper, parser

import sartor.backend
from sartor.errors import UnsupportedModelError
from sartor.runtime.driver.signature import Array
from sartor.runtime.session import Session
from tests.plugin.onnx_model.together import computed_together
from tests.plugin.test_odd_models import compiled

_HEADER = '<ir_version: 9, opset_import: ["" : 17]> '

# What a graph reads, what it gives, and its nodes; weights are drawn.
_COMPUTED = {
    "reshape to nothing": (
        "(float[0,6] x, float[2,3] z) => (float[0,2,3] y, float[2,3] u) <int64[3] s = {0,2,3}> "
        "{ y = Reshape <allowzero = 1> (x, s) u = Neg(z) }"
    ),
    "concatenation with nothing": (
        "(float[2,3] x, float[0,3] z) => (float[2,3] y) { c = Concat <axis = 0> (x, z) y = Neg(c) }"
    ),
    "slice to nothing and back": (
        "(float[2,3] x) => (float[2,3] y) <int64[1] a = {0}, int64[1] b = {0}> "
        "{ n = Slice(x, a, b, a) c = Concat <axis = 0> (n, x) y = Neg(c) }"
    ),
    "slice to nothing": (
        "(float[2,3] x) => (float[0,3] y) <int64[1] a = {0}, int64[1] b = {0}> { n = Slice(x, a, b, a) y = Neg(n) }"
    ),
    "convolution of no images": "(float[0,2,5,5] x) => (float[0,3,3,3] y) <float[3,2,3,3] w> { y = Conv(x, w) }",
    "product over nothing": "(float[2,0] x, float[0,3] z) => (float[2,3] y) { y = MatMul(x, z) }",
    "product of no rows": "(float[0,4] x, float[4,3] z) => (float[0,3] y) { y = MatMul(x, z) }",
    "sum over nothing": "(float[2,0] x) => (float[2,1] y) <int64[1] a = {1}> { y = ReduceSum(x, a) }",
    "product of elements of nothing": "(float[2,0] x) => (float[2,1] y) { y = ReduceProd <axes = [1]> (x) }",
    "sum of no rows": "(float[0,3] x) => (float[0,1] y) <int64[1] a = {1}> { y = ReduceSum(x, a) }",
    "softmax of nothing": "(float[2,0] x) => (float[2,0] y) { y = Softmax <axis = 1> (x) }",
    "softmax of no rows": "(float[0,3] x) => (float[0,3] y) { y = Softmax <axis = 1> (x) }",
    "padding of nothing": "(float[0,3] x) => (float[2,3] y) <int64[4] p = {1,0,1,0}> { y = Pad(x, p) }",
    "gather at no place": "(float[4,3] x, int64[0] i) => (float[0,3] y) { y = Gather(x, i) }",
    "gather at no constant place": (
        "(float[4,3] x) => (float[0,3] y) { i = Constant <value = int64[0] {}> () y = Gather(x, i) }"
    ),
    "pooling of no images": (
        "(float[0,2,4,4] x) => (float[0,2,2,2] y) { y = MaxPool <kernel_shape = [2,2], strides = [2,2]> (x) }"
    ),
    "transposition": "(float[0,3] x) => (float[3,0] y) { y = Transpose(x) }",
    "biased product over nothing": "(float[2,0] x, float[0,3] z, float[3] b) => (float[2,3] y) { y = Gemm(x, z, b) }",
    "expansion to nothing": "(float[1,3] x) => (float[0,3] y) <int64[2] s = {0,3}> { y = Expand(x, s) }",
    "normalisation of no rows": "(float[0,4] x) => (float[0,4] y) <float[4] w> { y = LayerNormalization(x, w) }",
    "mean over nothing": "(float[2,0] x) => (float[2,1] y) { y = ReduceMean <axes = [1]> (x) }",
    "scatter of nothing": "(float[4,3] x, int64[0,1] i, float[0,3] z) => (float[4,3] y) { y = ScatterND(x, i, z) }",
    "cumulated nothing": "(float[0,3] x) => (float[0,3] y) <int64 a = {0}> { y = CumSum(x, a) }",
    "places of no numbers": "(float[0] x) => (int64[1,0] y) { y = NonZero(x) }",
    "equation over nothing": (
        '(float[2,0] x, float[0,3] z) => (float[2,3] y) { y = Einsum <equation = "ij,jk->ik"> (x, z) }'
    ),
    "integer product over nothing": "(uint8[2,0] x, uint8[0,3] z) => (int32[2,3] y) { y = MatMulInteger(x, z) }",
    "batches of products over nothing": "(float[2,2,0] x, float[2,0,3] z) => (float[2,2,3] y) { y = MatMul(x, z) }",
    "none of the largest": "(float[2,3] x) => (float[2,0] y, int64[2,0] i) <int64[1] k = {0}> { y, i = TopK(x, k) }",
    "parts at no place": "(float[4,3] x, int64[0,1] i) => (float[0,3] y) { y = GatherND(x, i) }",
    "scattered elements of nothing": (
        "(float[4,3] x, int64[0,3] i, float[0,3] z) => (float[4,3] y) { y = ScatterElements <axis = 0> (x, i, z) }"
    ),
    "average of no images": "(float[0,2,4,4] x) => (float[0,2,1,1] y) { y = GlobalAveragePool(x) }",
    "smallest of nothing": "(float[2,0] x) => (float[2,1] y) { y = ReduceMin <axes = [1]> (x) }",
    "length of nothing": "(float[2,0] x) => (float[2,1] y) { y = ReduceL2 <axes = [1]> (x) }",
    "logarithm of a sum of nothing": "(float[2,0] x) => (float[2,1] y) { y = ReduceLogSumExp <axes = [1]> (x) }",
    "transposed convolution of no images": (
        "(float[0,2,5,5] x) => (float[0,3,7,7] y) <float[2,3,3,3] w> { y = ConvTranspose(x, w) }"
    ),
    "convolution of no channels": "(float[1,0,5,5] x) => (float[1,3,3,3] y) <float[3,0,3,3] w> { y = Conv(x, w) }",
    "normalised no images": (
        "(float[0,2,4] x) => (float[0,2,4] y) <float[2] s = {1,1}, float[2] b = {0,0}> "
        "{ y = InstanceNormalization(x, s, b) }"
    ),
    "enlarged nothing": (
        '(float[0,2,4,4] x) => (float[0,2,8,8] y) <float[4] s = {1,1,2,2}> { y = Resize <mode = "nearest"> (x, "", s) }'
    ),
    "positions of nothing": (
        "(int64[0] x) => (float[0,3] y) <int64 d = {3}, float[2] v = {0,1}> { y = OneHot(x, d, v) }"
    ),
    "all of nothing": "(float[0,3] x) => (float[1,1] y) { y = ReduceSum(x) }",
    "blocks of nothing": "(float[0,4,2,2] x) => (float[0,1,4,4] y) { y = DepthToSpace <blocksize = 2> (x) }",
    "wide sum over nothing": "(int64[2,0] x) => (int64[2,1] y) <int64[1] a = {1}> { y = ReduceSum(x, a) }",
    "concatenation of nothings": "(float[0,3] x, float[0,3] z) => (float[0,3] y) { y = Concat <axis = 0> (x, z) }",
}

_REFUSED = {
    "(float[2,0] x) => (int64[2,1] y) { y = ArgMax <axis = 1> (x) }": "(ArgMax) selects an element among none",
    "(float[0,2] x) => (int64[1,2] y) { y = ArgMin <axis = 0> (x) }": "(ArgMin) selects an element among none",
    "(float[1,2,0,4] x) => (float[1,2,1,1] y) { y = GlobalAveragePool(x) }": "(GlobalAveragePool) takes all pixels",
}


def _model(graph: str) -> ModelProto:
    """The model of a graph, whose weights are drawn and whose nodes have names."""
    drawn = re.compile(r"(?:, )?float\[([\d,]+)\] w(?=>)")
    built = parser.parse_model(_HEADER + "graph " + drawn.sub("", graph).replace("<>", ""))
    for shape in drawn.findall(graph):
        weights = np.random.default_rng(0).standard_normal([int(part) for part in shape.split(",")])
        built.graph.initializer.append(numpy_helper.from_array(weights.astype(np.float32), "w"))
    for index, node in enumerate(built.graph.node):
        node.name = f"n{index}"
    return built


def _inputs(built: ModelProto) -> dict[str, Array]:
    random = np.random.default_rng(1)
    return {
        value.name: random.standard_normal([each.dim_value for each in value.type.tensor_type.shape.dim]).astype(
            helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        )
        for value in built.graph.input
    }


def _expected(built: ModelProto, inputs: dict[str, Array]) -> list[Array]:
    """ONNX Runtime's results; of MatMulInteger over nothing it leaves what its memory held."""
    if built.graph.node[0].op_type == "MatMulInteger":
        return [np.zeros((2, 3), np.int32)]
    return list(onnxruntime.InferenceSession(built.SerializeToString()).run(None, inputs))


@pytest.fixture(scope="module")
def computed() -> dict[str, list[Array]]:
    models = {case: _model(graph) for case, graph in _COMPUTED.items()}
    return computed_together({case: (built, _inputs(built)) for case, built in models.items()})


@pytest.mark.parametrize("case", _COMPUTED)
def test_empty_tensors_are_computed_as_by_onnx_runtime(case: str, computed: dict[str, list[Array]]) -> None:
    built = _model(_COMPUTED[case])
    for actual, expected in zip(computed[case], _expected(built, _inputs(built)), strict=True):
        assert actual.shape == expected.shape
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("graph", _REFUSED)
def test_what_has_no_result_is_refused_with_the_node(graph: str) -> None:
    built = _model(graph)
    with pytest.raises(UnsupportedModelError, match=re.escape(f"node 'n0' {_REFUSED[graph]}")):
        sartor.backend.run_model(built, list(_inputs(built).values()))


def test_a_plan_of_layers_computes_them_too(tmp_path: Path) -> None:
    """A product over what a slice leaves nothing of, and a concatenation with nothing."""
    built = _model(
        "(float[2,3] x, float[3,4] z) => (float[4,4] y) <int64[1] a = {0}, int64[1] c = {1}> "
        "{ n = Slice(x, a, a, c) m = Slice(z, a, a, a) p = MatMul(n, m) q = MatMul(x, z) "
        "r = Concat <axis = 0> (q, m, p) y = Relu(r) }"
    )
    result = compiled(built, tmp_path)
    assert result.returncode == 0, result.stderr
    inputs = _inputs(built)
    with Session(tmp_path / "out.vmfb", threads=1) as session:
        (found,) = session.run(None, inputs)
    np.testing.assert_allclose(found, _expected(built, inputs)[0], rtol=1e-5, atol=1e-6)
