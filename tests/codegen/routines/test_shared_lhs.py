"""Operands that are shared: an LHS of several matrices, starts of sums that are read again, and views."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import pytest
from onnx import ModelProto

from sartor.codegen.analysis.matmul import MatmulShape, product_shape
from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, Variant, variants_of
from sartor.codegen.routines import ROUTINES, routines_for
from sartor.codegen.routines.amx.tile_product import TileProduct
from sartor.codegen.routines.iree.stock import Stock
from sartor.codegen.routines.iree.view import View
from sartor.codegen.routines.iree_tiled.tiled_matmul import TiledMatmul
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array
from tests.codegen.routines.harness import Subject, layers, load, run
from tests.codegen.routines.kernel_cases import EXTREME
from tests.codegen.routines.layer_cases import Cases, Follower
from tests.plugin.onnx_model.builders import FLOAT, ints, model, node
from tests.tiny_models import Builder

HOST, AMX = Target.create("cpu"), Target.create("cpu", "sapphirerapids")
MAX_ERROR = 1e-5
_PRODUCT = next(each for each in routines_for(()) if each.name == "product")
_TILED = next(each for each in ROUTINES if isinstance(each, TiledMatmul))
# Rows, depth, columns, batch. The LHS is a weight: an activation is repeated by a layer of its own.
_SIZES = [
    *((1, 33, 7, 3), (5, 33, 7, 3), (13, 16, 70, 2), (7, 5, 150, 5), (6, 19, 16, 1)),
    *((9, 31, 1, 3), (1, 17, 1, 3), (2, 1, 9, 3)),
]
_NAMES = {"m{}k{}n{}b{}".format(*each): each for each in _SIZES}
# Without several columns, or products to sum, it is no product of matrices by the kernels.
_WITHOUT = {name for name, (_, k, n, _) in _NAMES.items() if n == 1 or k == 1}
_EXTREME = ("m5k33n7b3", "followed")
# Those whose LHS is one weight.
_SHARED = ("m1k33n7b3", "m5k33n7b3", "followed")
# Every routine is tried by so many parameter sets.
_TRIED = 2


def _model() -> ModelProto:
    cases = Cases()
    for name, (m, k, n, b) in _NAMES.items():
        made = cases.builder.op("MatMul", name, cases.builder.weight(m, k), cases.source(f"{name}.x", (b, k, n)))
        cases.finish(name, made, (b, m, n))
    lhs, matrices = cases.builder.weight(7, 33), cases.source("followed.x", (3, 33, 40))
    made = cases.builder.op("MatMul", "followed", lhs, matrices)
    cases.finish("followed", made, (3, 7, 40), [Follower("Add", (3, 7, 40)), Follower("Mul", (7, 1)), Follower("Relu")])
    return cases.model()


@pytest.fixture(scope="module")
def found() -> Mapping[str, tuple[Layer, Mapping[str, Array]]]:
    return {layer.name: (layer, weights) for layer, weights in layers({"shared": _model})}


@pytest.fixture(scope="module")
def subjects(found: Mapping[str, tuple[Layer, Mapping[str, Array]]]) -> dict[str, Subject]:
    return {name: Subject(layer, weights, _codes(layer)) for name, (layer, weights) in found.items()}


def _codes(layer: Layer) -> dict[str, Implementation]:
    stock = ROUTINES[0].build(layer.task, {}, HOST)
    assert isinstance(stock, Implementation)
    codes = {"stock": stock}
    for routine in (_PRODUCT, _TILED):
        variants = [each for each in variants_of(routine, layer.task, HOST) if isinstance(each, Variant)]
        codes |= {each.descriptor.partition(".")[2]: each.implementation for each in variants[:_TRIED]}
    for parameters in EXTREME["many"]["product"] if layer.name in _EXTREME else ():
        built = _PRODUCT.build(layer.task, parameters, HOST)
        assert isinstance(built, Implementation), built
        codes[f"extreme{sorted(parameters.items())}"] = built
    return codes


@pytest.fixture(scope="module", params=[1, 2])
def program(request: pytest.FixtureRequest, subjects: dict[str, Subject]) -> Program:
    return load(subjects, HOST, request.param)


@pytest.mark.parametrize("name", _NAMES)
def test_each_matrix_is_multiplied_by_the_lhs(name: str, subjects: dict[str, Subject], program: Program) -> None:
    m, k, n, b = _NAMES[name]
    subject = subjects[name]
    (x,) = subject.inputs()
    lhs = subject.weights[subject.layer.weights[0]].astype(np.float64)
    # A small weight is repeated when weights are folded.
    expected = lhs.reshape(-1, m, k) @ x.reshape(b, k, n)
    if name not in _WITHOUT:
        assert any(each.startswith("product") for each in subject.implementations)
    for each in subject.implementations:
        given = run(program, subject, each, [x])
        error = np.abs(given.reshape(b, m, n) - expected).max() / np.abs(expected).max()
        assert error <= MAX_ERROR, each


def test_what_follows_is_computed_with_it(subjects: dict[str, Subject], program: Program) -> None:
    subject = subjects["followed"]
    inputs = subject.inputs()
    expected = run(program, subject, "stock", inputs)
    assert any(each.startswith("product") for each in subject.implementations)
    for each in subject.implementations:
        np.testing.assert_allclose(run(program, subject, each, inputs), expected, atol=1e-4)


def test_what_cannot_read_one_lhs_says_so(found: Mapping[str, tuple[Layer, Mapping[str, Array]]]) -> None:
    shapes = {name: product_shape(found[name][0].task) for name in _SHARED}
    assert all(isinstance(each, MatmulShape) and each.shares_lhs for each in shapes.values())
    task = found["m5k33n7b3"][0].task
    (refused,) = variants_of(next(each for each in ROUTINES if isinstance(each, TileProduct)), task, AMX)
    assert isinstance(refused, Rejected)
    assert refused.reason == "one LHS is multiplied by several matrices"


SHARED_START_HOST = Target.create("cpu")
SHAPE = (1, 16, 64, 64)


def _shared_start_model() -> ModelProto:
    b = Builder()
    zeros = b.op("ConstantOfShape", "zeros", b.constant(np.array(SHAPE)))
    sums = b.op("Conv", "sums", "x", b.weight(16, 16, 3, 3), pads=[1, 1, 1, 1])
    b.op("Max", "y", sums, zeros)
    return b.model([("x", SHAPE)], [("y", SHAPE)])


def test_kernels_compute_what_stock_code_does() -> None:
    (found,) = layers({"net": _shared_start_model})
    layer, weights = found
    codes: dict[str, Implementation] = {}
    for routine in (ROUTINES[0], *routines_for(())):
        variants = [
            variant for variant in variants_of(routine, layer.task, SHARED_START_HOST) if isinstance(variant, Variant)
        ]
        if routine is ROUTINES[0] or routine.name in ("direct", "fused_winograd"):
            codes |= {variant.descriptor: variant.implementation for variant in variants[:1]}
    assert len(codes) > 1
    subject = Subject(layer, weights, codes)
    program = load({"net": subject}, SHARED_START_HOST)
    (x,) = subject.inputs()
    expected, *others = (run(program, subject, code, [x]) for code in codes)
    assert (expected == 0).any()
    for other in others:
        np.testing.assert_allclose(other, expected, rtol=1e-3, atol=1e-3)


_TARGET = Target.create("cpu")
_ROUTINES = (
    Stock(),
    View("from", reads=True),
    View("to", writes=True),
    View("between", reads=True, writes=True),
)
# Shapes of what is read and of the result, the permutation, and the routines that take it.
_CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], set[str]]] = {
    "head": ((2, 18, 5, 7), (2, 105, 6), (0, 2, 3, 1), {"from"}),
    "last": ((1, 18, 5, 7), (1, 5, 7, 18), (0, 2, 3, 1), {"from"}),
    "first": ((2, 5, 7, 3), (2, 3, 5, 7), (0, 3, 1, 2), {"to"}),
    "line": ((1, 12, 1, 9), (9, 1, 12), (3, 0, 2, 1), {"from"}),
    "split": ((1, 12, 4, 6), (1, 3, 8, 12), (0, 2, 3, 1), {"from"}),
    "point": ((1, 1, 1, 1), (), (0, 2, 3, 1), set()),
    "turned": ((1, 6, 4, 5), (1, 5, 4, 6), (0, 3, 2, 1), set()),
    "rows_first": ((2, 6, 4, 5), (8, 30), (0, 2, 1, 3), set()),
    "batch_last": ((2, 6, 4, 5), (4, 5, 2, 6), (2, 3, 0, 1), set()),
    "uneven": ((1, 6, 4, 5), (1, 3, 40), (0, 1, 3, 2), set()),
}


def _views_model(name: str) -> ModelProto:
    before, after, order, _ = _CASES[name]
    nodes = [node("Transpose", ["x"], ["t"], perm=list(order)), node("Reshape", ["t", "shape"], ["y"])]
    return model(nodes, [("x", before, FLOAT)], [("y", after, FLOAT)], {"shape": ints(*after)})


@pytest.mark.parametrize("name", _CASES)
def test_a_view_is_taken_where_the_bytes_are_the_same_and_gives_what_moving_does(name: str) -> None:
    (found,) = layers({name: partial(_views_model, name)})
    layer, weights = found
    answers = {routine.name: list(variants_of(routine, layer.task, _TARGET)) for routine in _ROUTINES}
    codes = {name: each.implementation for name, (each,) in answers.items() if isinstance(each, Variant)}
    assert set(codes) == {"stock", *_CASES[name][-1]}
    assert all(isinstance(each, Rejected | Variant) for listed in answers.values() for each in listed)
    subject = Subject(layer, weights, codes)
    program = load({"net": subject}, _TARGET)
    inputs = subject.inputs()
    expected = run(program, subject, "stock", inputs)
    for other in set(codes) - {"stock"}:
        np.testing.assert_array_equal(run(program, subject, other, inputs), expected)


def test_what_computes_or_repeats_is_no_view() -> None:
    negated = [node("Transpose", ["x"], ["t"], perm=[0, 2, 3, 1]), node("Neg", ["t"], ["y"])]
    repeated = [node("Expand", ["x", "shape"], ["y"])]
    built = {
        "negated": partial(model, negated, [("x", (1, 6, 4, 5), FLOAT)], [("y", (1, 4, 5, 6), FLOAT)]),
        "repeated": partial(
            model, repeated, [("x", (1, 1, 4, 5), FLOAT)], [("y", (1, 6, 4, 5), FLOAT)], {"shape": ints(1, 6, 4, 5)}
        ),
    }
    for layer, _ in layers(built):
        for routine in _ROUTINES[1:]:
            assert all(isinstance(variant, Rejected) for variant in variants_of(routine, layer.task, _TARGET))
