"""Which cache the next product's filters of Winograd's method are fetched into."""

from __future__ import annotations

import re

import pytest

from sartor.codegen.ir.layer import LayerKind
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation
from sartor.codegen.mlir.dispatches import lower
from sartor.codegen.routines.vector.fused_winograd import FusedWinograd
from tests.importing import imported_model
from tests.plugin.onnx_model.builders import FLOAT, model, node, weights

_TARGET = Target.create("cpu", "x86-64-v4")
_FIRST, _SECOND = "3", "2"


def _fetched(channels: int, block: int) -> set[str]:
    """Levels of locality that a layer of as many channels fetches with, in register tiles of 13 tiles."""
    convolution = node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    image = [("x", (1, channels, 14, 14), FLOAT)]
    imported = imported_model(model([convolution], image, ["y"], {"w": weights(32, channels, 3, 3)}))
    task = next(layer.task for layer in imported.graph.layers if layer.task.kind is LayerKind.CONVOLUTION)
    sizes = {"height": 3, "width": 3, "columns": 13, "vectors": 2, "groups": 1, "panels": 1, "unroll": 1}
    built = FusedWinograd().build(task, {**sizes, "block": block}, _TARGET)
    assert isinstance(built, Implementation), built
    text = lower({"layer": built}, _TARGET)["layer"].text
    return set(re.findall(r"memref\.prefetch .*locality<(\d)>", text))


@pytest.mark.parametrize(
    ("channels", "block", "level"),
    [(256, 13, _FIRST), (256, 26, _SECOND), (272, 13, _SECOND)],
    ids=["read_once", "shared_by_two_tiles", "more_than_the_first_level_holds"],
)
def test_filters_that_are_read_once_are_fetched_into_the_first_level(channels: int, block: int, level: str) -> None:
    assert _fetched(channels, block) == {level}
