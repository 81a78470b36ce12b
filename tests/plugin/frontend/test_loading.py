"""What is said of a model while it is imported."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import onnx
import pytest

from sartor.codegen.mlir.machine import answers_about
from sartor.codegen.source_digest import locate
from sartor.config import CompileConfig
from sartor.errors import CompileError, UsageError
from sartor.frontend import loading
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.loading import import_network
from sartor.progress import silent
from sartor.tuning.selection.problem.pin import Pin
from sartor.tuning.workers.pool import WorkerPool
from tests.tiny_models import Builder


def test_weights_that_hold_nan_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    b = Builder()
    weight = np.ones((4, 8), np.float32)
    weight[1, 2] = np.nan
    broken = b.constant(weight)
    b.op("MatMul", "y", b.op("MatMul", "hidden", "x", broken), b.constant(np.ones((8, 2), np.float32)))
    onnx.save(b.model([("x", (3, 4))], [("y", (3, 2))]), tmp_path / "model.onnx")
    with WorkerPool(1) as pool, caplog.at_level(logging.WARNING):
        import_network(tmp_path / "model.onnx", CompileConfig().importing, pool, silent)
    said = [record.getMessage() for record in caplog.records if "NaN" in record.getMessage()]
    assert said == [f"the weight '{broken}' holds NaN; export the model again if that is not meant"]


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "the model has no layers"), (2, "the layers are l0, l1"), (6, "the layers are l0, l1, l2, l3, l4, …")],
)
def test_a_pin_that_matches_nothing_is_told_the_layers(count: int, said: str) -> None:
    layers = [SimpleNamespace(name=f"l{index}") for index in range(count)]
    graph = SimpleNamespace(layers=layers, all_layers=lambda: layers)
    with pytest.raises(UsageError, match=f"no layer is called 'x' as a pin wants; {said}$"):
        loading._check_pins(cast(ImportedModel, SimpleNamespace(graph=graph)), [Pin("x", "stock")])


def test_the_source_that_is_digested_beside_the_import_exists() -> None:
    """Its name is not imported, and a wrong one would only cost time."""
    assert locate(loading._DIGESTED) is not None


def test_what_is_begun_beside_the_import_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for again where it is needed, and fails there."""
    b = Builder()
    b.op("Relu", "y", "x")
    onnx.save(b.model([("x", (3, 4))], [("y", (3, 4))]), tmp_path / "model.onnx")
    asked = []

    def refuse(*arguments: object) -> None:
        asked.append(arguments)
        raise CompileError("no such CPU")

    answers: dict[object, object] = {}
    monkeypatch.setattr(loading, "load_dialects", refuse)
    monkeypatch.setattr(loading, "take_answers", answers.update)
    policy = CompileConfig().importing
    with WorkerPool(1) as pool:
        assert import_network(tmp_path / "model.onnx", policy, pool, silent).graph.layers
    assert asked == [()]
    assert answers == answers_about(policy.target)
