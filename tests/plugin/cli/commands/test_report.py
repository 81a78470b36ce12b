"""Files of ``sartor report`` that are folders: one sentence each, which were tracebacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugin.calling import assert_refused, call


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
