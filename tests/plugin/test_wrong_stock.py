"""A compiler that computes single layers wrongly: what is right wins, and the user is told."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected
from sartor.codegen.routines.iree.stock import Stock
from sartor.config import CompileConfig
from sartor.pipeline import compile_model
from sartor.tuning.records.measurement import Status
from sartor.tuning.selection.problem.pin import Pin
from sartor.tuning.store.store import Store

_BUILD = Stock.build


def miscompiled(stock: Stock, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
    """Rectifiers keep what they should drop."""
    found = _BUILD(stock, task, parameters, target)
    assert isinstance(found, Implementation)
    return replace(found, body=found.body.replace("arith.maximumf", "arith.minimumf"))


def test_a_miscompiled_candidate_0_is_told_and_not_chosen(
    model_file: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Stock, "build", miscompiled)
    # Without the unsplit model, so that the plan has to come from what was measured.
    config = CompileConfig(threads=1, jobs=2, database=tmp_path / "tuning.db", pins=(Pin("*", "*"),))
    with caplog.at_level(logging.WARNING):
        shipped = compile_model(model_file("lenet"), tmp_path / "net.vmfb", config)
    assert shipped.error is not None
    assert shipped.error < 1e-4
    with Store.open(config.database) as store:
        found = {
            measurement.key.task: measurement
            for measurement in store.measurements()
            if measurement.status is Status.WRONG_RESULT
        }
    assert found
    assert all(each.key.variant.endswith(".stock") for each in found.values())
    told = [record.getMessage() for record in caplog.records if "stock IREE fails on layer" in record.getMessage()]
    assert len(told) == len(found)
    assert all("ONNX Runtime on the nodes of layer" in each for each in told)
