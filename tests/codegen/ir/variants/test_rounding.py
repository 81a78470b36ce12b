"""What variants of a layer in 8 bits count for."""

from __future__ import annotations

import pytest

from sartor.codegen.ir.packing import Packing, Quantise, Round, Step
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.variants.rounding import STORED, rounding_of
from sartor.codegen.ir.variants.routine import Implementation, Variant
from sartor.codegen.routine_registry import described


def variant(descriptor: str, dtype: str, *packings: tuple[Step, ...]) -> Variant:
    schema = Schema("cpu", dtype, "nhwc")
    code = Implementation("", (schema,), (schema,), tuple(map(Packing, packings)))
    return Variant(descriptor, "cpu", dtype, code, described(descriptor).traits)


@pytest.mark.parametrize(
    ("found", "rounding"),
    [
        (variant("cpu:i8/conv2d.dots{}", "i8", (Quantise(0, 16, ()),), ()), "i8"),
        (variant("cpu:i8/conv2d.direct{}", "i8", (), ()), STORED),
        (variant("cpu:i8/pool.window{}", "i8"), "i8"),
        (variant("cpu:i8/conv2d.fused_winograd_dots{}", "i8", (Round("bf16"),)), "i8"),
        (variant("cpu:bf16/conv2d.direct{}", "bf16", ()), "bf16"),
        (variant("cpu:f32/conv2d.direct{}", "f32", ()), "f32"),
    ],
)
def test_filters_that_stay_what_they_are_do_not_count(found: Variant, rounding: str) -> None:
    assert rounding_of(found) == rounding
