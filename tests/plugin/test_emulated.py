"""Quantised models for AArch64, which is not measured here: by the likeliest kernels, or by those that pins ask for,
they give under emulation what ONNX Runtime gives here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto

from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.pipeline import compile_model
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.tuning.selection.problem.pin import Pin
from tests.emulated import Emulator, emulator
from tests.plugin.quantised_models import dynamic_network, network, one_convolution

EMULATOR = emulator()
MATRIX, DOTS = "neon_matrix_dots", "neon_dots"
BY_DOTS = (Pin("*conv*", f"*.{DOTS}{{*"), Pin("product", f"*.{DOTS}{{*"))


@pytest.mark.parametrize(
    ("make", "cpu", "pins", "routines"),
    [
        (network, "neoverse-v1", (), {"conv1": MATRIX, "conv2": MATRIX, "product": MATRIX}),
        (network, "neoverse-v1", BY_DOTS, {"conv1": DOTS, "conv2": DOTS, "product": DOTS}),
        (one_convolution, "neoverse-n1", (), {"conv": DOTS}),
        (dynamic_network, "neoverse-v1", (), {"conv1": f"whole_{MATRIX}", "product1": f"whole_{MATRIX}"}),
    ],
    ids=["static", "pinned", "without_i8mm", "dynamic"],
)
def test_quantised_models_are_right_under_emulation(
    make: Callable[[], ModelProto], cpu: str, pins: tuple[Pin, ...], routines: Mapping[str, str], tmp_path: Path
) -> None:
    model, module = tmp_path / "net.onnx", tmp_path / "net.vmfb"
    onnx.save(make(), model)
    target = Target.create("cpu", f"aarch64:{cpu}")
    config = CompileConfig(threads=1, jobs=2, database=tmp_path / "tuning.db", target=target, pins=pins)
    plan = compile_model(model, module, config).plan
    chosen = {layer.layer: layer.variant.partition(".")[2].partition("{")[0] for layer in plan.layers}
    assert {layer: chosen[layer] for layer in routines} == routines
    if not isinstance(EMULATOR, Emulator):
        pytest.skip(EMULATOR)
    reference = ReferenceModel(model, threads=1)
    (source,) = onnx.load(model).graph.input
    shape = [each.dim_value for each in source.type.tensor_type.shape.dim]
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    found, (expected,) = EMULATOR.run(module, "main_graph", [x]), reference({"x": x})
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()
