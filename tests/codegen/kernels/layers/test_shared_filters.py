"""Filters that are read elsewhere in their layer are not packed, as the other reader would find them so."""

from __future__ import annotations

import pytest

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Variant, variants_of
from sartor.codegen.routines import ROUTINES
from tests.codegen.shared_filters import dense, depthwise

TARGETS = (("cpu", "sapphirerapids"), ("cpu", "aarch64:neoverse-v1"), ("vulkan", None), ("cuda", "sm_90"))


@pytest.mark.parametrize("task", [dense(), depthwise()], ids=["dense", "depthwise"])
@pytest.mark.parametrize(("device", "architecture"), TARGETS)
def test_only_stock_code_has_them(device: str, architecture: str | None, task: Task) -> None:
    target = Target.create(device, architecture)
    made = [(routine.name, next(variants_of(routine, task, target), None)) for routine in ROUTINES]
    assert {name for name, each in made if isinstance(each, Variant)} == {"stock"}
