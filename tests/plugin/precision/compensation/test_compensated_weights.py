"""Weights of 4 bits rounded with compensation: the modules, the definition, the time budget and the sources."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx
import pytest
from onnx import ModelProto

from sartor.codegen.ir.encoding import BlockEncoding
from sartor.config import CompileConfig
from sartor.errors import UsageError
from sartor.pipeline import compile_model, replay_plan
from sartor.policies import Precision
from sartor.precision.compensation import compensated_weights
from sartor.precision.compensation.compensated_rounding import compensated
from sartor.precision.compensation.compensated_weights import OutOfTimeError, identity, with_compensation
from sartor.precision.compensation.second_moments import SecondMoments
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
        time_budget=120.0,
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


def _rows(count: int, depth: int, seed: int) -> Array:
    """Rows whose channels depend on each other and differ in size, as those of networks."""
    mixed = np.random.default_rng(0).standard_normal((depth // 4, depth))
    random = np.random.default_rng(seed)
    sizes = np.exp(np.random.default_rng(1).standard_normal(depth))
    rows = random.standard_normal((count, depth // 4)) @ mixed + 0.3 * random.standard_normal((count, depth))
    return np.asarray(rows * sizes, np.float32)


def _moments(*samples: Array) -> Array:
    seen = SecondMoments()
    for sample in samples:
        seen.observe(sample)
    assert seen.total is not None
    return seen.total


def _nearest(matrix: Array, of: BlockEncoding) -> Array:
    return of.decoded(*of.rounded(matrix))


def _error(matrix: Array, found: Array, rows: Array) -> float:
    return float(np.linalg.norm(rows @ (found - matrix)) / np.linalg.norm(rows @ matrix))


@pytest.mark.parametrize(("depth", "columns", "block"), [(256, 40, 32), (300, 17, 64), (96, 1, 16), (600, 8, 256)])
def test_errors_on_other_rows_are_smaller_than_by_rounding_to_nearest(depth: int, columns: int, block: int) -> None:
    matrix, of = weights(depth, columns), BlockEncoding(4, block, depth, columns)
    found = compensated(matrix, _moments(*np.split(_rows(1024, depth, 2), 4)), of)
    held_out = _rows(256, depth, 3)
    assert _error(matrix, found, held_out) < 0.7 * _error(matrix, _nearest(matrix, of), held_out)
    # What is packed is what was found.
    assert np.abs(_nearest(found, of) - found).max() <= 1e-6 * np.abs(found).max()


def test_each_row_is_rounded_from_the_best_change_of_what_is_left() -> None:
    """By least squares for the rows that are left, with those before as they were rounded."""
    depth, of = 48, BlockEncoding(4, 16, 48, 5)
    matrix, moments = weights(depth, 5), _moments(_rows(400, depth, 4))
    damped = moments + 0.01 * moments.diagonal().mean() * np.eye(depth)
    found = compensated(matrix, moments, of)
    steps = np.repeat(of.rounded(found)[1].T, 16, 0)
    for row in range(depth):
        error = found[:row] - matrix[:row]
        best = matrix[row:] - np.linalg.solve(damped[row:, row:], damped[row:, :row] @ error)
        nearest = np.clip(np.rint(best[0] / steps[row]), -8, 7) * steps[row]
        assert np.abs(found[row] - nearest).max() <= 1e-5 * np.abs(matrix).max(), row


def test_rows_that_say_nothing_leave_rounding_to_nearest() -> None:
    matrix, of = weights(64, 6), BlockEncoding(4, 32, 64, 6)
    for moments in (np.eye(64), np.zeros((64, 64))):
        assert np.allclose(compensated(matrix, moments, of), _nearest(matrix, of), atol=1e-7)


def test_it_is_given_up_once_it_is_seen_to_take_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    pace = compensated_weights._Pace(total=10.0, end=120.0)
    now[0] = 103.9
    pace.did(2.0)
    now[0] = 108.1
    with pytest.raises(OutOfTimeError):
        pace.did(2.0)
    with pytest.raises(OutOfTimeError):
        compensated_weights._Pace(total=1.0, end=now[0])
    # What has no work is done.
    compensated_weights._Pace(total=0.0, end=now[0])


def test_no_weight_is_compensated_then(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    given: list[Any] = []

    def late(*arguments: Any) -> None:
        given.extend(arguments)
        raise OutOfTimeError

    monkeypatch.setattr(compensated_weights, "compensated_model", late)

    imported: Any = object()
    calibration: Any = SimpleNamespace(samples="samples")
    policy, pool = cast(Any, "policy"), cast(Any, "pool")
    with caplog.at_level(logging.WARNING):
        found = with_compensation(imported, calibration, policy, pool, end=7.0)
    assert found == (imported, calibration)
    assert given[-1] == 7.0
    assert "--time-budget" in caplog.text


def test_what_is_stored_about_it_knows_its_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    assert identity("") == ""
    before = identity("samples")
    assert before == identity("samples") != identity("others")
    modules: list[str] = []

    def other(*names: str) -> str:
        modules.extend(names)
        return "changed"

    monkeypatch.setattr(compensated_weights, "source_digest", other)
    assert identity("samples") != before
    assert modules == [compensated_weights.__name__]
