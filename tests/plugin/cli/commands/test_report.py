"""Files of ``sartor report`` that are folders, or are read: one sentence each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugin.calling import assert_refused, call
from tests.plugin.external_model import WEIGHTS, write_convolution


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["."], "'.' cannot be read"),
        (["model.vmfb", "--model-explorer", "."], "'.' is a directory and was left as it is"),
    ],
)
def test_folders_in_place_of_files_are_refused(arguments: list[str], said: str, tmp_path: Path) -> None:
    result = call("sartor", "report", *arguments, folder=tmp_path)
    assert_refused(result, 2, said)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["-o", "--model-explorer"])
@pytest.mark.parametrize(
    ("name", "said"), [(WEIGHTS, "weights of the model"), ("model.onnx", "the model"), ("model.vmfb", "the module")]
)
def test_nothing_that_is_read_is_overwritten(option: str, name: str, said: str, tmp_path: Path) -> None:
    write_convolution(tmp_path / "model.onnx")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    result = call("sartor", "report", "model.vmfb", "--vs", "model.onnx", option, name, folder=tmp_path)
    assert_refused(result, 2, f"{option} '{name}' would overwrite {said}; name another file")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
