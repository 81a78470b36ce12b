"""Fixtures of the ONNX front end's tests."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest
from onnx import ModelProto

from sartor.onnx_model.graphs.prepared import PreparedModel
from sartor.onnx_model.preparing.prepare import prepare
from sartor.onnx_model.preparing.simplify import simplify
from sartor.onnx_model.reading.load import load_model

Prepare = Callable[..., PreparedModel]
Load = Callable[[ModelProto | bytes], ModelProto]


@pytest.fixture
def prepare_quickly(monkeypatch: pytest.MonkeyPatch) -> Prepare:
    """``prepare`` without onnxslim, whose process takes a second to start."""
    module = importlib.import_module("sartor.onnx_model.preparing.prepare")
    monkeypatch.setattr(module, "SIMPLIFY", tuple(step for step in module.SIMPLIFY if step is not simplify))
    return prepare


@pytest.fixture
def save_and_load(tmp_path: Path) -> Load:
    """Write a file and read it back with all checks."""

    def load(content: ModelProto | bytes) -> ModelProto:
        path = tmp_path / "model.onnx"
        path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
        return load_model(path)

    return load
