"""Files that are named on the command line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sartor.cli.options.common import existing_file, read_shapes, read_sources
from sartor.errors import UsageError


def test_models_are_not_read_from_standard_input_or_pipes(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (Path("-"), Path("/dev/null"), pipe):
        with pytest.raises(UsageError, match=f"'{path}' is not a regular file: standard input and pipes are not read"):
            existing_file(path)


def test_other_paths_are_not_taken_for_pipes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a file"):
        existing_file(tmp_path)
    with pytest.raises(UsageError, match="is not there"):
        existing_file(tmp_path / "absent")


@pytest.mark.parametrize(
    ("text", "names", "name", "source"),
    [
        ("x=run=3/x.npy", ["x"], "x", "run=3/x.npy"),
        ("x=run=3/x.npy", [], "x", "run=3/x.npy"),
        ("x=1=zeros", ["x=1", "y"], "x=1", "zeros"),
        ("x=1=a=b.npy", ["x", "x=1"], "x=1", "a=b.npy"),
        ("other=a=b", ["x"], "other", "a=b"),
    ],
)
def test_names_of_inputs_and_files_may_have_equals_signs(text: str, names: list[str], name: str, source: str) -> None:
    assert read_sources([text], names) == {name: source}


@pytest.mark.parametrize("text", ["x", "x=", "=zeros", "x=1="])
def test_an_input_without_a_name_or_a_source_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="cannot be read, expected NAME=FILE"):
        read_sources([text], ["x=1"])


def test_sizes_have_as_many_digits_as_a_model_can_have() -> None:
    assert read_shapes(["x=1,99999999999"]) == {"x": (1, 99999999999)}
    with pytest.raises(UsageError, match="is no shape"):
        read_shapes([f"x={'9' * 5000}"])
