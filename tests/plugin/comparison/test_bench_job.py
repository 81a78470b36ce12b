"""What is timed beside a module: on a GPU also inferences without transfers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from sartor.codegen.ir.target import Target
from sartor.comparison.bench_job import ON_DEVICE, SELF, BenchResults, BenchRuns, time_runs
from sartor.config import CompileConfig
from sartor.pipeline import compile_model
from tests.devices import needs_vulkan
from tests.tiny_models import Builder


def timed(device: str, folder: Path) -> list[str]:
    """What a bench of a product on a device times."""
    builder, shape = Builder(), (64, 32)
    product = builder.op("MatMul", "y", "x", builder.weight(32, 16))
    onnx.save(builder.model([("x", shape)], [(product, (64, 16))]), folder / "net.onnx")
    config = CompileConfig(target=Target.create(device), database=folder / "tuning.db", threads=1)
    compile_model(folder / "net.onnx", folder / "net.vmfb", config)
    feeds = {"x": np.ones(shape, np.float32)}
    workers = 1 if device == "cpu" else None
    runs = BenchRuns(folder / "net.vmfb", None, device, workers, None, (), 1, feeds, rounds=3, exactly=True)
    found = time_runs(runs)
    assert isinstance(found, BenchResults), found
    assert all(len(sample.seconds) == 3 and sample.minimum > 0 for sample in found.samples.values())
    assert found.errors == {}
    return [*found.samples]


def test_a_cpu_has_no_transfers(tmp_path: Path) -> None:
    assert timed("cpu", tmp_path) == [SELF]


@needs_vulkan
def test_a_gpu_is_timed_with_transfers_and_without(tmp_path: Path) -> None:
    assert timed("vulkan", tmp_path) == [SELF, ON_DEVICE]
