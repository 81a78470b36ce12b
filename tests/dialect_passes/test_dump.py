"""The folder of dumped modules: which files of a command they would replace, whatever is in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sartor.dialect_passes.dump import is_dumped
from sartor.errors import UsageError


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
