"""Products of one LHS by several matrices, whose batch has stride 0 in the LHS, whatever their sizes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from onnx import ModelProto

from sartor.codegen.analysis.matmul import MatmulShape, product_shape
from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, Variant, variants_of
from sartor.codegen.routines import ROUTINES, routines_for
from sartor.codegen.routines.amx.tile_product import TileProduct
from sartor.codegen.routines.iree_tiled.tiled_matmul import TiledMatmul
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array
from tests.codegen.routines.harness import Subject, layers, load, run
from tests.codegen.routines.kernel_cases import EXTREME
from tests.codegen.routines.layer_cases import Cases, Follower

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
