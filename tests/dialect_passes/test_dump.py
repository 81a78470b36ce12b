"""The folder of dumped modules: which files of a command they would replace, whatever is in it."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest

from sartor.dialect_passes.dump import folder_of_sizes, is_dumped
from sartor.errors import UsageError
from sartor.frontend.import_job import run_import
from sartor.frontend.imported_model import ImportedModel


def test_links_that_loop_are_names_like_others(tmp_path: Path) -> None:
    (tmp_path / "00-import.mlir").symlink_to("00-import.mlir")
    (tmp_path / "loop.json").symlink_to("loop.json")
    assert is_dumped(tmp_path / "00-import.mlir", tmp_path)
    assert not is_dumped(tmp_path / "loop.json", tmp_path)


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "d").touch()
    with pytest.raises(UsageError, match="/d' cannot be read: Not a directory"):
        is_dumped(tmp_path / "plan.json", tmp_path / "d")


def test_folders_of_several_plans_belong_to_it(tmp_path: Path) -> None:
    (tmp_path / "plan-1").mkdir()
    (tmp_path / "plan-1" / "02-layers.mlir").symlink_to(tmp_path / "model.onnx")
    assert is_dumped(tmp_path / "plan-0" / "00-import.mlir", tmp_path)
    assert is_dumped(tmp_path / "model.onnx", tmp_path)
    assert not is_dumped(tmp_path / "plans" / "00-import.mlir", tmp_path)
    assert not is_dumped(tmp_path / "plan-0" / "report.html", tmp_path)


def test_imports_with_several_sizes_have_a_folder_each(tmp_path: Path) -> None:
    folders = [folder_of_sizes(tmp_path, each) for each in ((8, 512), (7, 509), (85, 12))]
    assert len({*folders}) == len(folders)
    assert all(folder is not None and is_dumped(folder / "00-import.mlir", tmp_path) for folder in folders)
    assert folder_of_sizes(None, (8, 512)) is None


def test_the_model_is_kept_as_it_was_loaded_and_as_it_is_imported(tmp_path: Path) -> None:
    path, folder = tmp_path / "net.onnx", tmp_path / "dumped"
    graph = "g (float[2,3] x) => (float[2,3] y) { same = Identity(x) y = Relu(same) }"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> {graph}'), path)
    imported = run_import(path, {}, folder)
    assert isinstance(imported, ImportedModel)
    assert onnx.load(folder / "model-loaded.onnx") == onnx.load(path)
    assert (folder / "model-prepared.onnx").read_bytes() == imported.prepared
    rewrites = (folder / "model-rewrites.txt").read_text(encoding="utf-8").splitlines()
    assert any(rewrite.startswith("eliminate_identity: ") for rewrite in rewrites)
    assert all(is_dumped(each, folder) for each in folder.iterdir())
