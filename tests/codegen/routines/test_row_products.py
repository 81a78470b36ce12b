"""Products whose rows are quantised when they run give the products of rounded rows by rounded weights, row by row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest
from onnx import ModelProto

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.rounding import REACH, ROWS, rounding_of
from sartor.codegen.ir.variants.routine import Rejected, Variant, variants_of
from sartor.codegen.kernels.isa.multipliers import INTEGER_DOTS
from sartor.codegen.kernels.vector.row_product import MOST_PRODUCTS
from sartor.codegen.mlir.machine import machine_of
from sartor.codegen.routines.vector.product import RowScaledProduct
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array
from tests.codegen.routines.harness import Subject, layers, load, run
from tests.codegen.routines.layer_cases import Cases, Follower
from tests.codegen.routines.rounded_rows import REORDERING, rounded_rows, rounded_weight

HOST = Target.create("cpu", "host")
ROUTINE = RowScaledProduct()

pytestmark = pytest.mark.skipif(
    INTEGER_DOTS.refusal(machine_of(HOST)) is not None, reason="the CPU does not multiply 8 bits"
)


@dataclass(frozen=True)
class Product:
    """A product of ``rows`` by a weight ``[depth, columns]``, with ``batch`` before the rows if it is given."""

    rows: int
    depth: int
    columns: int
    batch: int | None = None
    followers: tuple[Follower, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.rows, self.depth) if self.batch is None else (self.batch, self.rows, self.depth)

    @property
    def result(self) -> tuple[int, ...]:
        return (*self.shape[:-1], self.columns)


PRODUCTS = {
    "odd": Product(13, 37, 19),
    "one_row": Product(1, 64, 40),
    "two_columns": Product(9, 20, 2),
    "least_depth": Product(5, 4, 33),
    "batches": Product(7, 68, 48, batch=8, followers=(Follower("Add", (48,), weight=True), Follower("Relu"))),
    "residual": Product(64, 96, 50, followers=(Follower("Add", (64, 50)),)),
    "long": Product(6, 4096, 16),
}

THOROUGH = ("odd",)


def _model() -> ModelProto:
    cases = Cases()
    for name, each in PRODUCTS.items():
        weight = cases.builder.weight(each.depth, each.columns)
        value = cases.builder.op("MatMul", name, cases.source(f"{name}.x", each.shape), weight)
        cases.finish(name, value, each.result, each.followers)
    return cases.model()


def _variants(layer: Layer) -> dict[str, Variant]:
    """All variants of the thorough cases, and the first of others."""
    found = [each for each in variants_of(ROUTINE, layer.task, HOST) if isinstance(each, Variant)]
    return {each.descriptor: each for each in (found if layer.name in THOROUGH else found[:1])}


@pytest.fixture(scope="module")
def subjects() -> Mapping[str, Subject]:
    found = {}
    for layer, weights in layers({"products": _model}):
        variants = _variants(layer)
        assert variants, layer.name
        assert {rounding_of(each) for each in variants.values()} == {ROWS}
        implementations = {name: each.implementation for name, each in variants.items()}
        assert all(not each.ranges and each.output.dtype == "f32" for each in implementations.values())
        found[layer.name] = Subject(layer, weights, implementations)
    assert found.keys() == PRODUCTS.keys()
    return found


@pytest.fixture(scope="module")
def program(subjects: Mapping[str, Subject]) -> Program:
    return load(subjects, HOST)


def _inputs(name: str, *, outliers: bool = False) -> list[Array]:
    """Rows of sizes from 1e-3 to 1e3 that are not centred, so that neither scale nor zero point of another row fits.

    Outliers are two channels in all rows, and a number of the last row that is larger than 16 bits may be.
    """
    random, shape = np.random.default_rng(4), PRODUCTS[name].shape
    sizes = 10.0 ** random.uniform(-3, 3, (*shape[:-1], 1))
    rows = random.standard_normal(shape) + random.uniform(-2, 2, sizes.shape)
    if outliers:
        rows[..., [1, shape[-1] // 2]] *= [60, -90]
        rows[..., -1, -1] = -1e4
    found = [(rows * sizes).astype(np.float32)]
    for each in PRODUCTS[name].followers:
        if each.operand is not None and not each.weight:
            found.append(random.standard_normal(each.operand).astype(np.float32))
    return found


def _expected(name: str, subject: Subject, inputs: list[Array], *, clipped: bool = False) -> Array:
    """The result for rounded rows and weights."""
    case, weights = PRODUCTS[name], [subject.weights[each] for each in subject.layer.weights]
    rows = rounded_rows(inputs[0], clipped=clipped).reshape(-1, case.depth)
    (weight,) = (each for each in weights if each.shape == (case.depth, case.columns))
    found = (rows @ rounded_weight(weight.astype(np.float64))).reshape(case.result)
    if name == "batches":
        (bias,) = (each for each in weights if each is not weight)
        found = np.maximum(found + bias, 0)
    return found + inputs[1] if name == "residual" else found


@pytest.mark.parametrize("outliers", [False, True])
@pytest.mark.parametrize("name", PRODUCTS)
def test_rows_are_rounded_by_their_own_ranges(
    name: str, outliers: bool, subjects: Mapping[str, Subject], program: Program
) -> None:
    subject, inputs = subjects[name], _inputs(name, outliers=outliers)
    expected = _expected(name, subject, inputs)
    size = np.abs(inputs[0]).max(-1, keepdims=True) * PRODUCTS[name].depth ** 0.5
    for variant in subject.implementations:
        found = run(program, subject, variant, inputs).reshape(expected.shape)
        assert (np.abs(found - expected) / size).max() < REORDERING, variant
        # The bound would notice the scale of another row, and outliers that are left out.
        assert name == "one_row" or (np.abs(np.roll(found, 1, -2) - expected) / size).max() > 100 * REORDERING
        if outliers and name != "least_depth":
            without = _expected(name, subject, inputs, clipped=True)
            assert (np.abs(found - without) / size).max() > 100 * REORDERING


def test_the_largest_sums_fit_32_bits(subjects: Mapping[str, Subject], program: Program) -> None:
    """As many outliers as there can be, as large as they can be, by weights of one sign and size."""
    subject, depth = subjects["long"], PRODUCTS["long"].depth
    rows = np.zeros(PRODUCTS["long"].shape, np.float32)
    rows[:, : int(depth / REACH) - 1] = 1.0
    rows[:, int(depth / REACH) : int(2 * depth / REACH) - 2] = 1e-2
    weights = {name: np.ones_like(each) for name, each in subject.weights.items()}
    alike = replace(subject, weights=weights)
    for variant in subject.implementations:
        found = run(program, alike, variant, [rows])
        np.testing.assert_allclose(found, rows.sum(1, keepdims=True) * np.ones((1, 16)), rtol=1e-2)


def test_longer_sums_are_refused() -> None:
    cases = Cases()
    for name, depth in (("within", MOST_PRODUCTS), ("beyond", MOST_PRODUCTS + 1)):
        value = cases.builder.op("MatMul", name, cases.source(f"{name}.x", (2, depth)), cases.builder.weight(depth, 3))
        cases.finish(name, value, (2, 3))
    found = {layer.name: layer.task for layer, _ in layers({"long": cases.model})}
    offered = {name: list(variants_of(ROUTINE, task, HOST)) for name, task in found.items()}
    assert all(isinstance(each, Variant) for each in offered["within"])
    assert all(isinstance(each, Rejected) and "32 bits" in each.reason for each in offered["beyond"])


def test_rows_without_a_range(subjects: Mapping[str, Subject], program: Program) -> None:
    subject = subjects["odd"]
    (rows,) = _inputs("odd")
    rows[2], rows[3], rows[4], rows[5, 7] = 0.0, 2.5, 1e-38, np.nan
    expected = _expected("odd", subject, [rows])
    for variant in subject.implementations:
        found = run(program, subject, variant, [rows])
        assert (found[2] == 0).all()
        np.testing.assert_allclose(found[3], expected[3], rtol=1e-4, atol=1e-4)
        assert np.abs(found[4]).max() < 1e-30
        assert np.isnan(found[5]).all()
        assert np.isfinite(np.delete(found, 5, 0)).all()
