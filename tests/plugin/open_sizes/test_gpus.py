"""Files for any size for a GPU: right at every size by IREE's code and by kernels, also through the commands."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sartor.cli.commands.compare import compare
from sartor.cli.commands.inspect import inspect
from sartor.cli.commands.run import run
from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.errors import UsageError
from sartor.frontend.target_check import runs_here
from sartor.open_sizes.compilation import OpenConfig, compile_open
from sartor.runtime.driver.signature import Array
from sartor.runtime.manifest import read_manifest
from sartor.runtime.output_error import relative_error
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.runtime.session import Session
from sartor.settings.size_range import SizeRange
from sartor.tuning.selection.problem.pin import Pin
from tests.devices import needs_vulkan
from tests.open_models import detector, feed_forward, saved

WIDTH, MOST = 24, 40
VULKAN = Target.create("vulkan")
# Of one product alone, as the driver compiles all heights of its register tiles in each process that runs them.
KERNELS = (Pin("head_product", "vulkan:f32/matmul.product*"), Pin("norm", "vulkan:f32/block.rowwise*"))


def config(folder: Path, *pins: Pin) -> CompileConfig:
    return CompileConfig(
        target=VULKAN, threads=1, jobs=1, database=folder / "tuning.db", plans=1, time_budget=0.0, pins=pins
    )


def drawn(*shape: int) -> Array:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


@needs_vulkan
def test_kernels_take_any_number_of_rows_also_through_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, path = saved(feed_forward(WIDTH), tmp_path / "net.onnx"), tmp_path / "net.vmfb"
    made = compile_open(model, path, OpenConfig(config(tmp_path, *KERNELS), {"x": (SizeRange(1, MOST), WIDTH)}))
    routines = {layer.layer: layer.variant.partition("{")[0] for layer in made.plan.layers}
    assert routines["head_product"] == "vulkan:f32/matmul.product"
    assert routines["norm"] == "vulkan:f32/block.rowwise"
    assert made.plan.target == str(VULKAN)
    assert [size.most for size in read_manifest(path).sizes] == [MOST]
    reference = OnnxRuntimeReference(model, threads=1)
    with Session(path) as session:
        for count in (1, MOST, 7, 13, 39, 2, 1):
            x = drawn(count, WIDTH)
            assert relative_error(session.run(None, {"x": x}), reference({"x": x})) < 1e-5, count
        with pytest.raises(UsageError, match=f"'rows' from 1 to {MOST}"):
            session.run(None, {"x": drawn(MOST + 1, WIDTH)})
    run(path, size=["rows=7"], json=True)
    assert json.loads(capsys.readouterr().out)["outputs"][0]["shape"] == [7, 19]
    inspect(path, size=["rows=7"])
    assert f"float32[7, {WIDTH}]" in capsys.readouterr().out
    compare(path, model, size=["rows=11"], json=True)
    assert json.loads(capsys.readouterr().out)["outputs"]


@needs_vulkan
def test_a_detector_is_right_at_any_size(tmp_path: Path) -> None:
    """Windows, poolings and joined images whose sides are open."""
    sides, batch = SizeRange(32, 96), SizeRange(1, 2)
    model, path = saved(detector(), tmp_path / "net.onnx"), tmp_path / "net.vmfb"
    compile_open(model, path, OpenConfig(config(tmp_path), {"x": (batch, 3, sides, sides)}))
    reference = OnnxRuntimeReference(model, threads=1)
    with Session(path) as session:
        for shape in [(1, 3, 32, 32), (2, 3, 47, 61), (1, 3, 96, 33), (2, 3, 96, 96)]:
            x = drawn(*shape)
            found, expected = session.run(None, {"x": x}), reference({"x": x})
            assert found[0].shape == expected[0].shape
            assert relative_error(found, expected) < 1e-5


def test_code_for_a_device_that_is_not_here_is_refused(tmp_path: Path) -> None:
    target = Target.create("vulkan", "valhall4")
    if runs_here(target):
        pytest.skip("this machine may have such a GPU")
    model = saved(feed_forward(WIDTH), tmp_path / "net.onnx")
    opened = OpenConfig(replace(config(tmp_path), target=target), {"x": (SizeRange(1, MOST), WIDTH)})
    with pytest.raises(UsageError, match="this machine runs no vulkan:valhall4; compile it on one that does"):
        compile_open(model, tmp_path / "net.vmfb", opened)
