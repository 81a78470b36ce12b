"""What fails of a decoder: a plan for prompts, which leaves it that for tokens, and lengths of what an encoder gave."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sartor.errors import (
    CompileError,
    DeviceError,
    ReferenceFailedError,
    RewriteError,
    SartorError,
    UnsupportedModelError,
    UsageError,
)
from sartor.frontend.imported_model import Origin
from sartor.onnx_model.states.cut_caches import CutModel
from sartor.open_sizes import compilation
from sartor.open_sizes.caches import CutFile
from sartor.open_sizes.compilation import _imported, _Making, _prompts
from sartor.open_sizes.prompts import CheckedPlan
from sartor.profiling.compilation.tuned_network import Tuned
from sartor.tuning.kept.values import KeptValues
from sartor.tuning.records.measurement import Status


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


def making(*imported: object) -> _Making:
    nothing: Any = SimpleNamespace(model=None, external_weights=None)
    bench: Any = SimpleNamespace(imported=[*imported])
    return _Making(nothing, nothing, bench, nothing, nothing, ())


@pytest.mark.parametrize("kind", [RewriteError, DeviceError, CompileError])
def test_a_plan_for_prompts_that_fails_is_left_out(
    kind: type[SartorError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was kept of its imports is forgotten if these may be what is wrong."""
    kept = KeptValues(tmp_path / "imports")
    kept.keep("a" * 80, b"", [], [])
    monkeypatch.setattr(KeptValues, "of_imports", lambda: kept)
    monkeypatch.setattr(_Making, "_plans", fails(kind("it fails")))
    assert making(SimpleNamespace(origin=Origin(b"", (), "a" * 80))).for_prompts() is None
    assert kept.may_have("a") == (kind is not RewriteError)


def test_tokens_are_tuned_first_and_published_alone_where_plans_cannot_be_joined(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    steps: list[str] = []

    def told(step: str, result: object) -> Any:
        def stepping(_: object) -> object:
            steps.append(step)
            return result

        return stepping

    tuned = Tuned(*cast(Any, ["plan", *[None] * 5]))
    checked = SimpleNamespace(refined="checked plan", tokens=4)
    monkeypatch.setattr(_Making, "_plans", told("tokens", (None, tuned, None)))
    monkeypatch.setattr(_Making, "for_prompts", told("prompts", checked))
    monkeypatch.setattr(CheckedPlan, "of", lambda *_: checked)
    monkeypatch.setattr(_Making, "_joined", fails(CompileError("two plans have different code")))
    monkeypatch.setattr(_Making, "_published", lambda _self, _found, best, _runner: best.refined)
    with caplog.at_level(logging.WARNING):
        published: Any = making().tuned_with(making())
    assert published == "checked plan"
    assert steps == ["tokens", "prompts"]
    assert "two plans have different code" in caplog.text


def test_a_joined_file_that_is_wrong_is_not_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[Any] = []
    publication = SimpleNamespace(drop=lambda *targets: dropped.extend(targets))
    first: Any = SimpleNamespace(joined=lambda *_: "files")
    own = replace(
        making(), publication=cast(Any, publication), config=cast(Any, SimpleNamespace(external_weights=None))
    )
    monkeypatch.setattr(compilation, "stage_files", lambda *_: "staged")
    wrong: Any = SimpleNamespace(status=Status.WRONG_RESULT, message="it is 3 off")
    monkeypatch.setattr(compilation, "judged_file", lambda *_: wrong)
    with pytest.raises(CompileError, match="it is 3 off"):
        own._joined(first, first)
    assert dropped == [own.output]
    wrong.status = Status.OK
    run: Any = own._joined(first, first)
    assert run is wrong
    assert dropped == [own.output]


def test_an_import_that_fails_tells_of_lengths_that_an_encoder_gave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilation, "import_open", fails(UnsupportedModelError("node 'a' contradicts")))
    cut = CutModel((), {}, (), encoded=("encoder_mask",))
    for file, said in ((None, "'a' contradicts$"), (CutFile(tmp_path, cut, ()), "'encoder_mask': .* fixed sizes by")):
        with pytest.raises(UnsupportedModelError, match=said):
            _imported(tmp_path, {}, file, cast(Any, None), cast(Any, None), None)
