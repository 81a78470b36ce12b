"""Models without sizes: compiled for any size, by the command line and from Python, where settings allow it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sartor
from sartor.api import compile
from sartor.artifact import Artifact
from sartor.config import CompileConfig
from sartor.errors import UnsupportedModelError, UsageError
from sartor.onnx_model.dynamic.open_bounds import UnboundSizesError
from sartor.open_sizes import unbound
from sartor.open_sizes.compilation import OpenConfig
from sartor.settings.size_range import SizeRange
from tests.open_models import POSITIONS, encoder, feed_forward, saved

NAMES = "input_ids", "attention_mask"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[OpenConfig]:
    """The settings of files for any size that are asked for; none is made."""
    found: list[OpenConfig] = []

    def compile_open(model: Path, output: Path, config: OpenConfig, *_: object) -> Artifact:
        found.append(config)
        plan: Any = None
        return Artifact(output, plan, None, 0)

    for module in (unbound, sartor.api):
        monkeypatch.setattr(module, "compile_open", compile_open)
    return found


def test_a_model_without_sizes_is_compiled_for_any_up_to_its_bounds(opened: list[OpenConfig], tmp_path: Path) -> None:
    path = saved(encoder(), tmp_path / "net.onnx")
    compile(path, CompileConfig(threads=1, database=tmp_path / "tuning.db"))
    assert opened[0].shapes == dict.fromkeys(NAMES, (SizeRange(1, 8), SizeRange(1, POSITIONS)))
    assert opened[0].sources[0] == "batch=1..8, the usual bound"
    assert opened[0].sources[-1].startswith(f"for other sizes change --shape input_ids=1..8,1..{POSITIONS}")


def test_what_cannot_be_made_for_any_size_is_refused_as_before(opened: list[OpenConfig], tmp_path: Path) -> None:
    path = saved(feed_forward(), tmp_path / "net.onnx")
    config = CompileConfig(threads=1, database=tmp_path / "tuning.db", memory_limit=1 << 20)
    with pytest.raises(UnboundSizesError, match="bind it with --shape x="):
        compile(path, config)
    assert not opened


def test_ranges_are_given_as_texts_from_python(opened: list[OpenConfig], tmp_path: Path) -> None:
    path = saved(feed_forward(), tmp_path / "net.onnx")
    log = tmp_path / "rows.txt"
    compile(path, shapes={"x": ("1..64", 24)}, calls=log)
    assert opened[0].shapes == {"x": (SizeRange(1, 64), 24)}
    assert opened[0].log is not None
    assert opened[0].log.path == log
    with pytest.raises(UsageError, match=r"shapes\['x'\] is '64-', expected an integer"):
        compile(path, shapes={"x": ("64-", 24)})


def test_a_failure_tells_which_sizes_were_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(*_: object) -> Artifact:
        raise UnsupportedModelError("it divides by a root")

    monkeypatch.setattr(unbound, "compile_open", fails)
    path = saved(feed_forward(), tmp_path / "net.onnx")
    told = r"nor can a file for any size be made, as by --shape x=1\.\.8,24: .* by a root"
    with pytest.raises(UnsupportedModelError, match=told):
        compile(path, CompileConfig(threads=1, database=tmp_path / "tuning.db"))
