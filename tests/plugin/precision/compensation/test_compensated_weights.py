"""Modules whose weights in blocks of 4 bits were rounded with compensation on samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto

from sartor.codegen.ir.encoding import BlockEncoding
from sartor.config import CompileConfig
from sartor.errors import UsageError
from sartor.pipeline import compile_model, replay_plan
from sartor.policies import Precision
from sartor.precision.compensation.compensated_rounding import compensated
from sartor.runtime.session import Session
from sartor.tuning.selection.problem.pin import Pin
from tests.plugin.onnx_model.builders import FLOAT, Array, model, node, weights

_ROWS, _DEPTH, _HIDDEN, _COLUMNS, _BLOCK = 4, 96, 128, 24, 64
_FIRST, _SECOND = weights(_DEPTH, _HIDDEN, seed=1), weights(_HIDDEN, _COLUMNS, seed=2)


def _network() -> ModelProto:
    constants = {"first": _FIRST, "second": np.ascontiguousarray(_SECOND.T)}
    nodes = [
        node("MatMul", ["x", "first"], ["hidden"], name="one"),
        node("Relu", ["hidden"], ["positive"], name="relu"),
        node("Gemm", ["positive", "second"], ["y"], name="two", transB=1),
    ]
    return model(nodes, [("x", (_ROWS, _DEPTH), FLOAT)], ["y"], constants)


def _inputs(count: int, seed: int) -> Array:
    mixed = np.random.default_rng(0).standard_normal((_DEPTH // 6, _DEPTH))
    random = np.random.default_rng(seed)
    return np.asarray(random.standard_normal((count, _ROWS, _DEPTH // 6)) @ mixed, np.float32)


def _outputs(x: Array, first: Array, second: Array) -> Array:
    return np.asarray(np.maximum(x @ first, 0) @ second)


def _expected(x: Array, samples: Array) -> Array:
    """The outputs by weights that were compensated for what the exact network reads on the samples."""
    rounded = []
    for matrix, read in ((_FIRST, samples), (_SECOND, np.maximum(samples @ _FIRST, 0))):
        rows = read.reshape(-1, len(matrix)).astype(np.float64)
        rounded.append(compensated(matrix, rows.T @ rows, BlockEncoding(4, _BLOCK, *matrix.shape)))
    return _outputs(x, *rounded)


def test_modules_have_the_compensated_weights_and_plans_ask_for_the_samples(tmp_path: Path) -> None:
    path, module = tmp_path / "model.onnx", tmp_path / "net.vmfb"
    onnx.save(_network(), path)
    samples, x = _inputs(40, 1), _inputs(1, 2)[0]
    np.savez(tmp_path / "samples.npz", x=samples)
    config = CompileConfig(
        threads=1,
        jobs=1,
        time_budget=20.0,
        max_error=0.2,
        precision=Precision.INT4_WEIGHTS,
        weight_blocks=(_BLOCK,),
        calibration=tmp_path / "samples.npz",
        database=tmp_path / "t.db",
        pins=(Pin("*", "cpu:i4b64/*"),),
    )
    artifact = compile_model(path, module, config)
    with Session(module, threads=1) as session:
        (found,) = session.run(None, {"x": x})
    # The first 16 samples, by which errors are simulated, are left out.
    expected, exact = _expected(x, samples[16:]), _outputs(x, _FIRST, _SECOND)
    nearest = [
        of.decoded(*of.rounded(each)) for each in (_FIRST, _SECOND) for of in [BlockEncoding(4, _BLOCK, *each.shape)]
    ]
    by_nearest = np.linalg.norm(_outputs(x, *nearest) - exact)
    # Moments are summed in another order and type on other processors, where codes next to a tie may be others.
    assert np.linalg.norm(found - expected) < 0.05 * by_nearest
    assert np.linalg.norm(found - exact) < 0.7 * by_nearest
    first = module.read_bytes()
    replay_plan(path, artifact.plan, module, config)
    assert module.read_bytes() == first
    with pytest.raises(UsageError, match="replayed without any; give the same samples with --calibration"):
        replay_plan(path, artifact.plan, module, replace(config, calibration=None))
