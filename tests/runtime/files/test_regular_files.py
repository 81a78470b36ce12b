"""Files that the user names: none blocks the command, and none fills the memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sartor.errors import UsageError
from sartor.runtime.driver.signature import TensorSpec
from sartor.runtime.files.regular_files import check_regular, read_text
from sartor.runtime.module import open_module
from sartor.samples.array_stream import stored_array
from sartor.samples.feeds import read_archive, read_array
from sartor.samples.given_samples import Samples
from sartor.tuning.records.plan import Plan
from sartor.tuning.store.store import Store

_SPEC = TensorSpec("x", "float32", (1, 3))
_READERS: dict[str, Callable[[Path], object]] = {
    "module": open_module,
    "database": Store.open,
    "database to read": Store.open_to_read,
    "array": stored_array,
    "input": lambda path: read_array(path, _SPEC),
    "inputs": lambda path: read_archive(path, [_SPEC]),
    "samples": lambda path: Samples.open(path, [_SPEC]),
}


@pytest.fixture(params=["pipe", "device"])
def special(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """What can be opened, but blocks or has no end."""
    if request.param == "device":
        return Path("/dev/zero")
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("reader", _READERS)
def test_what_is_no_regular_file_is_refused_unread(special: Path, reader: str) -> None:
    with pytest.raises(UsageError, match=f"{special}'? cannot be read: it is no regular file, copy its content to one"):
        _READERS[reader](special)


def test_standard_input_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="'-' cannot be read: standard input is not read, write it to a file first"):
        open_module(Path("-"))
    Path("-").touch()
    check_regular(Path("-"))


def test_files_and_folders_and_nothing_are_left_to_the_reader(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for each in (tmp_path, tmp_path / "file", tmp_path / "file" / "below", tmp_path / "nothing"):
        check_regular(each)


def test_a_plan_without_end_is_refused() -> None:
    with pytest.raises(UsageError, match="longer than 64 MiB"):
        Plan.load(Path("/dev/zero"))


def test_a_text_may_come_through_a_pipe(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, "é".encode())
    os.close(writing)
    assert read_text(Path(f"/dev/fd/{reading}"), 2) == "é"
    os.close(reading)
    (tmp_path / "text").write_bytes(b"\xc3\xa9!")
    with pytest.raises(ValueError, match="longer than"):
        read_text(tmp_path / "text", 2)
