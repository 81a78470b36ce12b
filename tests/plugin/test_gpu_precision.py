"""Lower precision on a GPU, from the budget to a file that is verified on the device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.pipeline import compile_model
from sartor.policies import Precision
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.output_error import relative_error
from sartor.runtime.session import Session
from sartor.tuning.selection.problem.pin import Pin
from tests.codegen.routines.layer_cases import in_half
from tests.devices import needs_vulkan
from tests.tiny_models import Builder

SHAPE = (1, 16, 12, 12)
# Storing and multiplying in f16 errs by some 1e-3 here.
WIDE, NARROW = 2e-2, 1e-5


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two convolutions and a product by a 1x1 filter, for which the device has kernels in f16."""
    builder = Builder()
    first = builder.op("Relu", "first.relu", builder.conv("first", "x", (16, 32)))
    second = builder.op("Relu", "second.relu", builder.conv("second", first, (32, 32)))
    last = builder.conv("last", second, (32, 24), kernel=1)
    path = tmp_path_factory.mktemp("precision") / "net.onnx"
    onnx.save(builder.model([("x", SHAPE)], [(last, (1, 24, 12, 12))]), path)
    return path


def samples(folder: Path) -> Path:
    """Inputs that calibrate."""
    folder.mkdir()
    random = np.random.default_rng(1)
    for number in range(2):
        np.savez(folder / f"{number}.npz", x=random.standard_normal(SHAPE, np.float32))
    return folder


def compiled(model: Path, folder: Path, max_error: float) -> tuple[set[str], float]:
    """The types of the plan's layers, and the error of the module on the device, on an input that calibrated nobody."""
    config = CompileConfig(
        target=Target.create("vulkan"),
        database=folder / "tuning.db",
        precision=Precision.F16,
        max_error=max_error,
        calibration=samples(folder / "samples"),
        pins=(Pin("second", "*f16*"),) if max_error == WIDE else (),
    )
    module = folder / "net.vmfb"
    artifact = compile_model(model, module, config)
    assert artifact.error is not None
    assert artifact.error <= max_error
    feeds = {"x": np.random.default_rng(7).standard_normal(SHAPE, np.float32)}
    with Session(module, device="vulkan") as session:
        error = relative_error(session.run(None, feeds), ReferenceModel(model)(feeds))
    return {layer.dtype for layer in artifact.plan.layers}, error


@needs_vulkan
def test_a_plan_in_f16_keeps_to_its_budget_on_the_device(model: Path, tmp_path: Path) -> None:
    types, error = compiled(model, tmp_path, WIDE)
    assert "f16" in types
    assert 1e-6 < error < WIDE


@needs_vulkan
def test_a_budget_that_f16_exceeds_leaves_f32(model: Path, tmp_path: Path) -> None:
    types, error = compiled(model, tmp_path, NARROW)
    assert "f16" not in types
    assert error < NARROW


@needs_vulkan
def test_a_model_in_f16_has_kernels_of_its_own_type(model: Path, tmp_path: Path) -> None:
    half = tmp_path / "half.onnx"
    onnx.save(in_half(onnx.load(model)), half)
    # With a pin the unsplit model, which has no layers, is no plan: it may be the fastest of so small a network.
    pins = (Pin("*", "*"),)
    config = CompileConfig(target=Target.create("vulkan"), database=tmp_path / "tuning.db", pins=pins)
    artifact = compile_model(half, tmp_path / "net.vmfb", config)
    assert {layer.dtype for layer in artifact.plan.layers} == {"f16"}
    assert any("half_" in layer.variant for layer in artifact.plan.layers)
    feeds = {"x": np.random.default_rng(7).standard_normal(SHAPE, np.float32).astype(np.float16)}
    with Session(tmp_path / "net.vmfb", device="vulkan") as session:
        (result,) = session.run(None, feeds)
    expected = ReferenceModel(model)({"x": feeds["x"].astype(np.float32)})
    assert result.dtype == np.float16
    assert relative_error([result.astype(np.float32)], expected) < WIDE
