"""Modules whose filters are stored in fewer bytes: as the model has them and transformed in each call, or in 8 bits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import sartor
from sartor.policies import Precision
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.manifest import read_manifest
from sartor.runtime.session import Session
from sartor.tuning.records.network import Network
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.selection.problem.pin import Pin
from tests.codegen.routines.layer_cases import Cases

_SHAPE = (1, 32, 20, 18)


def test_sessions_and_stock_tools_run_it(tmp_path: Path) -> None:
    cases, path, module = Cases(), tmp_path / "model.onnx", tmp_path / "net.vmfb"
    cases.convolution("conv", _SHAPE, 32)
    model = cases.model()
    onnx.save(model, path)
    config = sartor.CompileConfig(
        threads=1,
        jobs=1,
        objective=Objective.COLD,
        pins=(Pin("*", "*.transforming_winograd{*"),),
        database=tmp_path / "tuning.db",
    )
    artifact = sartor.compile(path, config, output=module)
    assert [each.variant.split("{")[0] for each in artifact.plan.layers] == ["cpu:f32/conv2d.transforming_winograd"]
    filters = next(each for each in map(numpy_helper.to_array, model.graph.initializer) if each.ndim == 4)
    (layer,) = Network.from_json(read_manifest(module).network, "the network").layers
    assert layer.weights[0].bytes == filters.nbytes
    with Session(module, threads=1) as session:
        (given,) = session.get_inputs()
        values = np.random.default_rng(0).standard_normal(_SHAPE).astype(np.float32)
        (expected,) = ReferenceModel(path)({given.name: values})
        for _ in range(3):
            (found,) = session.run(None, {given.name: values})
            np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())
    values.tofile(tmp_path / "values.bin")
    tool, result = Path(sys.executable).with_name("iree-run-module"), tmp_path / "out.npy"
    given_values, wanted = f"--input=1x32x20x18xf32=@{tmp_path / 'values.bin'}", f"--output=@{result}"
    command = [str(tool), f"--module={module}", "--device=local-sync", "--function=main_graph", given_values, wanted]
    subprocess.run(command, check=True, capture_output=True)
    np.testing.assert_array_equal(np.load(result), found)


def test_filters_alone_are_stored_in_8_bits(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """All is computed in f32, so that no samples are wanted to find ranges of values."""
    cases, path, module = Cases(), tmp_path / "model.onnx", tmp_path / "net.vmfb"
    cases.convolution("conv", _SHAPE, 32)
    onnx.save(cases.model(), path)
    config = sartor.CompileConfig(
        threads=1,
        jobs=1,
        precision=Precision.INT8_WEIGHTS,
        max_error=0.05,
        pins=(Pin("*", "*.direct_by_i8{*"),),
        database=tmp_path / "tuning.db",
    )
    artifact = sartor.compile(path, config, output=module)
    assert [layer.variant.split("{")[0] for layer in artifact.plan.layers] == ["cpu:i8/conv2d.direct_by_i8"]
    assert artifact.error is not None
    assert 1e-4 < artifact.error < 0.05
    assert not [message for message in caplog.messages if "samples" in message]
