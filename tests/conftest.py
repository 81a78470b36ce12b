"""Tiny models taken through the front end, once for all tests."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from sartor.frontend.import_job import run_front
from sartor.frontend.imported_model import Front
from sartor.tuning.workers.calls import Refusal
from tests.tiny_models import MODELS

FrontOf = Callable[[str], Front]


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The ONNX file of a tiny model."""
    folder = tmp_path_factory.mktemp("tiny")

    def save(name: str) -> Path:
        path = folder / f"{name}.onnx"
        if not path.exists():
            onnx.save(MODELS[name](), path)
        return path

    return save


@pytest.fixture(scope="session")
def front_of(model_file: Callable[[str], Path]) -> FrontOf:
    """What the front end makes of a tiny model."""

    @functools.cache
    def make(name: str) -> Front:
        front = run_front(model_file(name), {}, None)
        assert not isinstance(front, Refusal), front
        return front

    return make
