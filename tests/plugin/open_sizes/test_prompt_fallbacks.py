"""What fails of a plan for prompts leaves a decoder its plan for single tokens."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sartor.errors import CompileError, DeviceError, ReferenceFailedError, RewriteError, SartorError, UsageError
from sartor.open_sizes import compilation
from sartor.open_sizes.compilation import _Making, _prompts


def fails(error: SartorError) -> Any:
    def failing(*_: object, **__: object) -> None:
        raise error

    return failing


@pytest.mark.parametrize("kind", [UsageError, ReferenceFailedError, CompileError])
def test_a_model_that_fails_with_several_tokens_takes_no_prompts(
    kind: type[SartorError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compilation, "call", fails(kind("it cannot run")))
    config = SimpleNamespace(planning=SimpleNamespace(pins=()))
    tokens = SimpleNamespace(config=config, bench=SimpleNamespace(directory=tmp_path, pool=None))
    cut = SimpleNamespace(prompt={"input_ids": (1, 4)})
    with caplog.at_level(logging.WARNING):
        assert _prompts(tmp_path / "decoder.onnx", cast(Any, cut), cast(Any, None), cast(Any, tokens)) is None
    assert "it cannot run" in caplog.text


def making() -> _Making:
    nothing: Any = SimpleNamespace()
    return _Making(nothing, nothing, nothing, nothing, nothing, ())


@pytest.mark.parametrize("kind", [RewriteError, DeviceError, CompileError])
def test_a_plan_for_prompts_that_fails_is_left_out(kind: type[SartorError], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Making, "_plans", fails(kind("it fails")))
    assert making().for_prompts() is None
