"""Calibration: ranges are those of the tensors on all samples, however they are chunked and streamed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

from sartor.errors import UsageError
from sartor.onnx_model.graphs.infer import infer_shapes
from sartor.onnx_model.preparing.prepare import prepare
from sartor.onnx_model.reading.load import load_model
from sartor.precision.calibration import observed
from sartor.precision.observe_job import Observed, observe
from sartor.runtime.driver.signature import Array, TensorSpec
from sartor.samples.given_samples import HeldSamples, Samples
from sartor.tuning.calibration.methods import OBSERVERS, CalibrationMethod, MinMaxObserver
from sartor.tuning.workers.pool import WorkerPool
from tests.tiny_models import Builder

IMAGES = np.random.default_rng(3).standard_normal((5, 1, 3, 4, 4)).astype(np.float32)
SAMPLES = HeldSamples(tuple({"x": image} for image in IMAGES))


def observed_ranges(*given: Any, **options: Any) -> dict[str, tuple[float, float]]:
    """The ranges that observers find."""
    return {name: each.range() for name, each in observed(*given, **options).items()}


def _model() -> ModelProto:
    """Each ReLU doubles what its sample has, so that all ranges follow from the samples."""
    b = Builder()
    two = b.constant(np.array(2, np.float32))
    first = b.op("Relu", "relu1", b.op("Mul", "mul1", "x", two))
    b.op("ArgMax", "largest", first, axis=1, keepdims=0)
    b.op("Relu", "y", b.op("Mul", "mul2", first, two))
    model = b.model([("x", (1, 3, 4, 4))], [("y", (1, 3, 4, 4))])
    infer_shapes(model)
    return model


@pytest.mark.parametrize("chunk_bytes", [1, 400, 1 << 20])
def test_ranges_are_those_of_the_tensors(pool: WorkerPool, chunk_bytes: int) -> None:
    steps: list[tuple[str, int, int]] = []
    found = observed_ranges(
        _model().SerializeToString(),
        ["x", "relu1", "mul2", "y", "largest"],
        SAMPLES,
        pool,
        MinMaxObserver,
        chunk_bytes=chunk_bytes,
        progress=lambda *step: steps.append(step),
    )
    most = float(IMAGES.max())
    expected = {
        "x": (float(IMAGES.min()), most),
        "relu1": (0.0, 2 * most),
        "mul2": (0.0, 4 * most),
        "y": (0.0, 4 * most),
    }
    assert found == expected
    assert steps[-1][1] == steps[-1][2]
    assert [done for _, done, _ in steps] == sorted(done for _, done, _ in steps)


def test_samples_in_files_give_the_same(pool: WorkerPool, tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(_model().SerializeToString())
    np.savez(tmp_path / "samples.npz", x=IMAGES)
    samples = Samples.open(tmp_path / "samples.npz", [TensorSpec("x", "float32", (1, 3, 4, 4))])
    observer = OBSERVERS[CalibrationMethod.MSE]
    assert observed_ranges(model, ["y"], samples, pool, observer) == observed_ranges(
        model, ["y"], SAMPLES, pool, observer
    )


def test_observation_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(_model().SerializeToString())
    seen = Observed({"relu1": MinMaxObserver()}, 0)
    for number in range(1, len(IMAGES) + 1):
        after = observe(path, SAMPLES, seen, 1, seconds=0.0)
        assert isinstance(after, Observed)
        assert after.sample == number
        assert after.observers["relu1"].range() == (0.0, 2 * float(IMAGES[:number].max()))
        seen = after


def test_errors_in_the_worker_are_the_users(pool: WorkerPool, tmp_path: Path) -> None:
    bad: Array = IMAGES.copy()
    bad[2] = np.inf
    np.save(tmp_path / "x.npy", bad)
    samples = Samples.open(tmp_path / "x.npy", [TensorSpec("x", "float32", (1, 3, 4, 4))])
    with pytest.raises(UsageError, match="sample 2 holds values that are not finite"):
        observed_ranges(_model().SerializeToString(), ["y"], samples, pool, MinMaxObserver)
    wrong = HeldSamples(({"x": IMAGES[0, :, :2]},))
    with pytest.raises(UsageError, match="ONNX Runtime cannot run the model"):
        observed_ranges(_model().SerializeToString(), ["y"], wrong, pool, MinMaxObserver)


def test_a_real_model(pool: WorkerPool, model_folder: Path) -> None:
    """Digits are from 0 to 255, and the first ReLU of this model sees no more than its weights make of that."""
    model = prepare(load_model(model_folder / "mnist_8.onnx")).model
    digits = np.random.default_rng(0).integers(0, 256, (3, 1, 1, 28, 28)).astype(np.float32)
    samples = HeldSamples(tuple({"Input3": digit} for digit in digits))
    relus = [node.output[0] for node in model.graph.node if node.op_type == "Relu"]
    assert relus
    found = observed_ranges(model.SerializeToString(), ["Input3", *relus], samples, pool, MinMaxObserver)
    assert found["Input3"] == (digits.min(), digits.max())
    assert all(low == 0 < high < 1e5 for low, high in (found[name] for name in relus))
