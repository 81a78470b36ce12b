"""ONNX Runtime never runs the user's file in the process that the user called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sartor.reference.trusted.reference_model import ReferenceModel
from tests.plugin.calling import call, parsed


def test_the_users_file_stays_outside(
    model_file: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers are processes of their own, in which nothing is patched."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("ONNX Runtime loads a model here")

    monkeypatch.setattr(ReferenceModel, "__init__", refuse)
    model, module = model_file("one_pixel"), tmp_path / "model.vmfb"
    database = ("--tuning-db", tmp_path / "t.db")
    result = call("compile-to-vmfb", model, "-o", module, "--threads", 1, *database, "--json")
    assert parsed(result)["relative_error"] < 1e-3
    (output,) = parsed(call("sartor", "compare", module, "--vs", model, "--json"))["outputs"]
    assert output["within"]
    runs = parsed(call("sartor", "bench", module, "--vs", model, "--rounds", 2, "--dispatches", "--json"))
    assert [each["name"] for each in runs["runs"]] == ["sartor", "onnxruntime"]
    assert runs["dispatches"]["dispatches"]
