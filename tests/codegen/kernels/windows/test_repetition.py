"""Images that are enlarged by whole factors are recognised by the pixels that are read, however these are computed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Rejected, choices_of
from sartor.codegen.kernels.windows.concatenation import concatenation_of
from sartor.codegen.kernels.windows.repetition import repetition_of
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import nested
from sartor.codegen.routines.vector.join import JoinEnlarged
from tests.codegen.routines.harness import layers
from tests.codegen.routines.layer_cases import Cases, Follower

HALF = "half_pixel"
# Factors, how positions are found and rounded, and how often pixels of a row are repeated.
MODES = {
    "double": ((2, 2), "asymmetric", "floor", (2,)),
    "uneven": ((2, 3), HALF, "round_prefer_floor", (3,)),
    "rows": ((4, 1), "asymmetric", "floor", (1,)),
    "thirds": ((3, 3), HALF, "round_prefer_floor", (3,)),
    # The last pixel of a row is stored once more, the first one less.
    "shifted": ((2, 2), HALF, "floor", ()),
}


@pytest.fixture(scope="module")
def found() -> dict[str, Layer]:
    cases = Cases()
    for name, (factors, transform, rounding, _) in MODES.items():
        cases.enlarged(name, (2, 5, 3, 7), factors, positions=(transform, rounding))
    return {layer.name: layer for layer, _ in layers({"all": cases.model})}


@pytest.mark.parametrize("name", MODES)
def test_repeated_pixels_are_found_whatever_the_arithmetic(name: str, found: dict[str, Layer]) -> None:
    concatenation = concatenation_of(found[name].task)
    assert (concatenation.repeats if concatenation else ()) == MODES[name][-1]


def test_tiles_begin_with_the_first_repetition_of_a_pixel(found: dict[str, Layer]) -> None:
    task, target, routine = found["uneven"].task, Target.create("cpu"), JoinEnlarged()
    offered = choices_of(routine, task, target)
    assert not isinstance(offered, Rejected)
    assert {each["columns"] % 3 for each in offered if isinstance(each["columns"], int)} == {0}
    answer = routine.build(task, {**offered[0], "columns": 4}, target)
    assert answer == Rejected("tiles of 4 columns begin with another repetition than a pixel's first")


_ENLARGED = """func.func @f(%x: tensor<1x2x3x3xf32>) -> tensor<1x2x6x6xf32> {
  %two = arith.constant 2.0 : f32
  %to = tensor.empty() : tensor<1x2x6x6xf32>
  %y = linalg.generic {
    indexing_maps = [affine_map<(a, b, c, d) -> (MAP)>],
    iterator_types = ["parallel", "parallel", "parallel", "parallel"]
  } outs(%to : tensor<1x2x6x6xf32>) {
  ^bb0(%old: f32):
    %n = linalg.index 0 : index
    %c = linalg.index 1 : index
    ROW
    COLUMN
    %v = tensor.extract %x[%n, %c, %row, %column] : tensor<1x2x3x3xf32>
    linalg.yield %v : f32
  } -> tensor<1x2x6x6xf32>
  return %y : tensor<1x2x6x6xf32>
}"""


def _halved(name: str, axis: int) -> str:
    return f"""%{name}0 = linalg.index {axis} : index
    %{name}1 = arith.index_cast %{name}0 : index to i64
    %{name}2 = arith.sitofp %{name}1 : i64 to f32
    %{name}3 = arith.divf %{name}2, %two : f32
    %{name}4 = math.floor %{name}3 : f32
    %{name}5 = arith.fptosi %{name}4 : f32 to i64
    %{name} = arith.index_cast %{name}5 : i64 to index"""


@pytest.mark.parametrize(("stored", "is_enlarged"), [("a, b, c, d", True), ("a, b, d, c", False)])
def test_what_is_stored_transposed_is_not_taken_for_enlarged(stored: str, *, is_enlarged: bool) -> None:
    text = _ENLARGED.replace("MAP", stored).replace("ROW", _halved("row", 2)).replace("COLUMN", _halved("column", 3))
    module = ir.Module.parse(text, ir.Context())
    with module.context:
        (op,) = [each for each in nested(module.operation) if each.name == "linalg.generic"]
        found = repetition_of(op.results[0])
        assert (found is not None and (found.rows, found.columns) == (2, 2)) == is_enlarged


def test_a_copy_of_an_image_is_not_enlarged(found: dict[str, Layer]) -> None:
    same = _ENLARGED.replace("MAP", "a, b, c, d").replace("1x2x3x3", "1x2x6x6")
    same = same.replace("ROW", "%row = linalg.index 2 : index").replace("COLUMN", "%column = linalg.index 3 : index")
    assert concatenation_of(replace(found["double"].task, body=same)) is None


def test_what_is_enlarged_is_computed_before() -> None:
    """Not once for each repetition."""
    cases = Cases()
    image, scales = cases.source("x", (1, 5, 4, 6)), cases.builder.constant(np.array([1, 1, 2, 2], np.float32))
    scaled = cases.builder.op("Mul", "scaled", image, cases.source("scale", (1, 5, 1, 1)))
    how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", "mode": "nearest"}
    large = cases.builder.op("Resize", "large", scaled, "", scales, **how)
    cases.finish("large", large, (1, 5, 8, 12), [Follower("Relu")])
    formed = [layer for layer, _ in layers({"model": cases.model})]
    assert [each.nodes for each in formed] == [("scaled",), ("large", "large.0.Relu")]
