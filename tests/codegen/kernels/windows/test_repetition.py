"""Images that are enlarged by whole factors are recognised by the pixels that are read, however these are computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.kernels.windows.concatenation import concatenation_of
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
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Layer]:
    cases = Cases()
    for name, (factors, transform, rounding, _) in MODES.items():
        cases.enlarged(name, (2, 5, 3, 7), factors, positions=(transform, rounding))
    return {layer.name: layer for layer, _ in layers(tmp_path_factory.mktemp("enlarged"), {"all": cases.model})}


@pytest.mark.parametrize("name", MODES)
def test_repeated_pixels_are_found_whatever_the_arithmetic(name: str, found: dict[str, Layer]) -> None:
    concatenation = concatenation_of(found[name].task)
    assert (concatenation.repeats if concatenation else ()) == MODES[name][-1]


def test_tiles_begin_with_the_first_repetition_of_a_pixel(found: dict[str, Layer]) -> None:
    task, target, routine = found["uneven"].task, Target.create("cpu"), JoinEnlarged()
    offered = routine.parameters(task, target)
    assert not isinstance(offered, Rejected)
    assert {each["columns"] % 3 for each in offered if isinstance(each["columns"], int)} == {0}
    answer = routine.build(task, {**offered[0], "columns": 4}, target)
    assert answer == Rejected("tiles of 4 columns begin with another repetition than a pixel's first")


def test_what_is_enlarged_is_computed_before(tmp_path: Path) -> None:
    """Not once for each repetition."""
    cases = Cases()
    image, scales = cases.source("x", (1, 5, 4, 6)), cases.builder.constant(np.array([1, 1, 2, 2], np.float32))
    scaled = cases.builder.op("Mul", "scaled", image, cases.source("scale", (1, 5, 1, 1)))
    how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", "mode": "nearest"}
    large = cases.builder.op("Resize", "large", scaled, "", scales, **how)
    cases.finish("large", large, (1, 5, 8, 12), [Follower("Relu")])
    formed = [layer for layer, _ in layers(tmp_path, {"model": cases.model})]
    assert [each.nodes for each in formed] == [("scaled",), ("large", "large.0.Relu")]
