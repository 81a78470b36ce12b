"""What ``compile-to-vmfb`` writes: over nothing that it uses, and all of it or nothing."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import onnx
import pytest

from sartor.artifact import Artifact
from sartor.cli.commands import compile as command
from sartor.cli.output import compile_report
from sartor.config import CompileConfig
from sartor.progress import Progress
from sartor.publishing import Publication
from sartor.tuning.records.plan import Plan
from sartor.workspace import workspace
from tests.plugin.calling import assert_refused, call
from tests.plugin.external_model import WEIGHTS, write_convolution
from tests.plugin.report.made import choice, plan_of, subject

_PLAN = plan_of(choice("first"))
_OUTPUTS = {"-o": "o.vmfb", "--external-weights": "o.irpa", "--save-plan": "plan.json", "--report": "report.html"}
_STOCK = ("--threads", 1, "--pin", "*=*stock*", "--tuning-db", "t.db")


@contextmanager
def _nothing_changes(folder: Path) -> Iterator[None]:
    before = _contents(folder)
    yield
    assert _contents(folder) == before


def _contents(folder: Path) -> Mapping[str, bytes]:
    """What lies in a folder, but for the database."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith("t.db")}


def test_weights_of_the_model_are_not_overwritten(tmp_path: Path) -> None:
    write_convolution(tmp_path / "model.onnx")
    with _nothing_changes(tmp_path):
        result = call("compile-to-vmfb", "model.onnx", "-o", "o.vmfb", "--report", WEIGHTS, *_STOCK, folder=tmp_path)
    assert_refused(result, 2, f"--report '{WEIGHTS}' would overwrite weights of the model; name another file")
    assert "compiling" not in result.stderr


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        ("m.onnx", ("-o", "o.vmfb", "--report", "p.html", "--save-plan", "p-1.html"), "what --save-plan writes"),
        ("m.onnx", ("-o", "p-1.html", "--report", "p.html"), "what -o writes"),
        ("p-2.onnx", ("-o", "o.vmfb", "--report", "p.onnx"), "the model"),
    ],
)
def test_pages_of_plans_overwrite_nothing(model: str, options: tuple[str, ...], said: str, tmp_path: Path) -> None:
    write_convolution(tmp_path / model, batch="N")
    with _nothing_changes(tmp_path):
        result = call("compile-to-vmfb", model, *options, "--shape", "x=1|2,3,8,8", *_STOCK, folder=tmp_path)
    assert_refused(result, 2, "page ", " of --report 'p-", f"would overwrite {said}; name another file")
    assert len(result.stderr.splitlines()) == 1, "nothing was imported"


def test_the_file_of_the_scheduler_is_not_overwritten(tmp_path: Path) -> None:
    write_convolution(tmp_path / "model.onnx")
    (tmp_path / "scheduler.json").write_text("{}")
    with _nothing_changes(tmp_path):
        arguments = ["-o", "o.vmfb", "--save-plan", "scheduler.json", "--workers", "scheduler.json"]
        result = call("compile-to-vmfb", "model.onnx", *arguments, folder=tmp_path)
    assert_refused(result, 2, "--save-plan 'scheduler.json' would overwrite the file of the scheduler")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-o", "d/02-layers.mlir"), "-o"),
        (("-o", "o.vmfb", "--save-plan", "link.json"), "--save-plan"),
        (("-o", "o.vmfb"), "the model"),
    ],
)
def test_modules_after_passes_overwrite_nothing(options: tuple[str, ...], said: str, tmp_path: Path) -> None:
    write_convolution(tmp_path / "model.onnx")
    (tmp_path / "d").mkdir()
    (tmp_path / "link.json").symlink_to("d/10-plan.mlir")
    if said == "the model":
        (tmp_path / "d" / "00-import.mlir").symlink_to("../model.onnx")
    before = (tmp_path / "model.onnx").read_bytes()
    result = call("compile-to-vmfb", "model.onnx", *options, "--dump-dir", "d", *_STOCK, folder=tmp_path)
    assert_refused(result, 2, f"--dump-dir 'd' would write over {said}")
    assert (tmp_path / "model.onnx").read_bytes() == before
    assert not any(path.is_file() and not path.is_symlink() for path in (tmp_path / "d").iterdir())


def test_modules_after_passes_overwrite_no_weights(tmp_path: Path) -> None:
    write_convolution(tmp_path / "plain.onnx")
    (tmp_path / "d").mkdir()
    weights = tmp_path / "d" / "01-fold-weights.mlir"
    onnx.save(
        onnx.load(tmp_path / "plain.onnx"), tmp_path / "d" / "model.onnx",
        save_as_external_data=True, location=weights.name, size_threshold=0,
    )  # fmt: skip
    before = weights.read_bytes()
    result = call("compile-to-vmfb", "d/model.onnx", "-o", "o.vmfb", "--dump-dir", "d", *_STOCK, folder=tmp_path)
    assert_refused(result, 2, "--dump-dir 'd' would write over weights of the model")
    assert weights.read_bytes() == before


def test_modules_after_passes_are_not_written_through_links(tmp_path: Path) -> None:
    write_convolution(tmp_path / "model.onnx")
    (tmp_path / "d").mkdir()
    (tmp_path / "else.txt").write_text("kept")
    (tmp_path / "d" / "01-fold-weights.mlir").symlink_to("../else.txt")
    result = call("compile-to-vmfb", "model.onnx", "-o", "o.vmfb", "--dump-dir", "d", *_STOCK, folder=tmp_path)
    assert_refused(result, 2, "--dump-dir 'd' would write through the link 'd/01-fold-weights.mlir'")
    assert (tmp_path / "else.txt").read_text() == "kept"


@pytest.mark.parametrize("options", [("-o", "x"), ("-o", "o.vmfb", "--save-plan", "x")])
def test_the_folder_of_modules_after_passes_is_no_other_file(options: tuple[str, ...], tmp_path: Path) -> None:
    write_convolution(tmp_path / "model.onnx")
    result = call("compile-to-vmfb", "model.onnx", *options, "--dump-dir", "x", *_STOCK, folder=tmp_path)
    assert_refused(result, 2, f"--dump-dir 'x' is {options[-2]}, too")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("failing", [None, "o.irpa", "o.vmfb", "plan.json", "report.html"])
def test_files_are_published_together_or_not_at_all(
    failing: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "compile_model", _compiled)
    monkeypatch.setattr(compile_report, "open_subject", lambda path, plan: subject(name=path.name))
    monkeypatch.setattr(command, "show_artifact", lambda *_: None)
    (tmp_path / "model.onnx").write_bytes(b"model")
    for name in _OUTPUTS.values():
        (tmp_path / name).write_bytes(b"old")
    before = _contents(tmp_path)
    named = _fail_at(failing, monkeypatch)
    options = [each for pair in _OUTPUTS.items() for each in pair]
    result = call("compile-to-vmfb", "model.onnx", *options, *_STOCK, folder=tmp_path)
    after = _contents(tmp_path)
    if failing is not None:
        assert_refused(result, 2, f"'{failing}' cannot be written: Input/output error")
        assert after == before
        return
    assert result.returncode == 0, result.stderr
    assert named == ["o.irpa", "o.vmfb", "plan.json", "report.html"], "a module always has its weights"
    assert after.keys() == before.keys()
    assert (after["o.irpa"], after["o.vmfb"]) == (b"new weights", b"new module")
    assert Plan.load(tmp_path / "plan.json") == _PLAN
    assert b'"o.vmfb"' in after["report.html"]


def _compiled(model: Path, output: Path, config: CompileConfig, progress: Progress, whole: Publication) -> Artifact:
    """Stage a module and weights that were compiled from any model."""
    assert config.external_weights is not None
    with workspace() as folder:
        for name, target in (("weights", config.external_weights), ("module", output)):
            (folder / name).write_text(f"new {name}")
            whole.stage(folder / name, target)
    return Artifact(output, _PLAN, None, 10, config.external_weights)


def _fail_at(failing: str | None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let one file not get its name; returns the names that are given from now on."""
    rename, named = os.replace, []

    def replace(source: Path, target: Path) -> None:
        if target.name == failing and failing not in named:
            named.append(failing)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        named.append(target.name)
        rename(source, target)

    monkeypatch.setattr("sartor.publishing.os.replace", replace)
    return named
