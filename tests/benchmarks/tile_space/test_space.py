"""The space holds the routines that made the listed variants, and those with vectors of other widths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.tile_space.space import Space, is_numbered, width_of
from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Variant, variants_of
from sartor.codegen.mlir.machine import machine_of
from sartor.codegen.routines import FUSED_ROUTINES, ROUTINES
from sartor.codegen.routines.vector.direct import Direct
from sartor.codegen.routines.vector.window import SlidingWindow
from tests.importing import imported_model
from tests.plugin.onnx_model.builders import FLOAT, model, node

TARGET = Target.create("cpu")


def layer_of(path: Path, op: onnx.NodeProto, channels: int, weights: dict[str, np.ndarray]) -> Layer:
    onnx.save(model([op], [("x", (1, channels, 6, 6), FLOAT)], ["y"], weights), path / "m.onnx")
    found = imported_model(path / "m.onnx")
    (layer,) = found.graph.layers
    return layer


def convolution(path: Path, channels: int) -> Layer:
    filters = np.ones((channels, channels, 3, 3), np.float32)
    return layer_of(path, node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1]), channels, {"w": filters})


def test_routines_are_those_that_made_the_variants(tmp_path: Path) -> None:
    """A pooling that stores its result in f16 has the name of the one in f32."""
    layer = layer_of(tmp_path, node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2]), 16, {})
    variants = [variant for variant in variants_of(SlidingWindow(), layer.task, TARGET) if isinstance(variant, Variant)]
    assert sum(each.name == "window" for each in (*ROUTINES, *FUSED_ROUTINES)) > 1
    space = Space(layer.task, TARGET)
    ((routine, listed),) = space.kernels(variants)
    made = [space.make(routine, each) for each in listed]
    assert [each.descriptor for each in made if each is not None] == [variant.descriptor for variant in variants]


def test_narrower_blocks_divide_what_wider_ones_do_not(tmp_path: Path) -> None:
    layer = convolution(tmp_path, 12)
    found: dict[str, list[Variant]] = {}
    for variant in Space(layer.task, TARGET, (2, 4)).of_other_widths():
        found.setdefault(variant.routine, []).append(variant)
    assert {"direct_by_2", "direct_by_4", "direct_blocked_by_2", "direct_blocked_by_4"} <= found.keys()
    assert {each.implementation.output.layout for each in found["direct_blocked_by_4"]} == {"nchw4c"}
    assert all(width_of(each) in (2, 4) and is_numbered(each) for name in found for each in found[name])
    assert not any("f16" in name or "i8" in name for name in found)
    space = Space(layer.task, TARGET, (4,))
    ((routine, listed),) = space.kernels(found["direct_blocked_by_4"])
    assert (routine.name, len(listed)) == ("direct_blocked_by_4", len(found["direct_blocked_by_4"]))


def test_the_width_of_a_routine_of_the_cpu_is_none(tmp_path: Path) -> None:
    layer = convolution(tmp_path, 12)
    plain = [variant for variant in variants_of(Direct(), layer.task, TARGET) if isinstance(variant, Variant)]
    assert plain
    assert {width_of(each) for each in plain} == {None}


@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("factor", [0.25, 0.5, 2])
def test_a_machine_of_another_width_holds_no_more_in_its_registers(factor: float, level: str) -> None:
    whole = machine_of(Target.create("cpu", level))
    lanes = int(factor * whole.lanes)
    other = whole.with_lanes(lanes)
    assert (other.lanes, other.core.lanes) == (lanes, lanes)
    assert other.registers * max(1, lanes // whole.lanes) <= whole.registers
    assert other.core.operations_per_cycle <= whole.core.operations_per_cycle * max(1, whole.core.lanes // whole.lanes)
