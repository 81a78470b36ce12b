"""One scale, or one zero point, of one block of a weight that is wrong is seen where a kernel is checked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sartor.codegen.ir.encoding import BlockEncoding
from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.packing import Packing
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Variant
from sartor.codegen.routines import routines_for
from sartor.costing.listing import list_candidates
from sartor.tuning.cost_tables.tables import tuned_cases
from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.records.measurement import Status
from tests.codegen.routines.encoded.blocked_products import BlockedProduct, model_of
from tests.importing import imported_model
from tests.plugin.onnx_model.builders import Array
from tests.tuning.measuring.test_sized_cases import measured

_TARGET = replace(Target.create("cpu"), threads=1)
_SCALES, _POINTS = 1, 2
# Of a block whose drawn scale is not near zero: what a zero point changes is as large.
_PLACE = 40


@dataclass(frozen=True)
class _OneWrong:
    """A step that changes one number of what it packs: a scale by a tenth, a zero point by one."""

    place: int

    def apply(self, array: Array) -> Array:
        wrong = array.copy()
        number = wrong.reshape(-1)[self.place : self.place + 1]
        number[...] = number * 1.1 if number.dtype.kind == "f" else number ^ 1
        return wrong

    def type_of(self, tensor: TensorType) -> TensorType:
        return tensor


@pytest.fixture(scope="module", params=[1, 8])
def case(request: pytest.FixtureRequest) -> BenchmarkCase:
    """A product of one row or several, by stock code and by a kernel that reads codes."""
    rows: int = request.param
    imported = imported_model(
        model_of({"product": BlockedProduct(rows, BlockEncoding(4, 32, 256, 48), points="packed")})
    )
    variants = list_candidates(imported.graph, routines_for(frozenset()), _TARGET).variants
    (found,) = tuned_cases(imported.graph, variants)
    kernel = next(each for each in found.variants if each.routine == "block_product")
    return replace(found, variants=(found.variants[0], kernel))


def _planted(variant: Variant, weight: int) -> Variant:
    packings = list(variant.implementation.packings)
    packings[weight] = Packing((_OneWrong(_PLACE), *packings[weight].steps))
    return replace(variant, implementation=replace(variant.implementation, packings=tuple(packings)))


def test_what_is_right_passes(case: BenchmarkCase, tmp_path: Path) -> None:
    assert [each.status for each in measured(case, tmp_path)] == [Status.OK, Status.OK]


@pytest.mark.parametrize("weight", [_SCALES, _POINTS])
def test_one_number_of_a_block_that_is_wrong_is_seen(case: BenchmarkCase, weight: int, tmp_path: Path) -> None:
    stock, kernel = case.variants
    found = measured(replace(case, variants=(stock, _planted(kernel, weight))), tmp_path)
    assert [each.status for each in found] == [Status.OK, Status.WRONG_RESULT]
