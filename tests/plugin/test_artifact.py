"""Files are published whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sartor.artifact import check_writable, publish
from sartor.errors import UsageError


def test_a_published_file_replaces_the_old_one(tmp_path: Path) -> None:
    source, target = tmp_path / "new", tmp_path / "out.vmfb"
    source.write_bytes(b"new")
    target.write_bytes(b"old")
    mask = os.umask(0o027)
    try:
        publish(source, target)
    finally:
        os.umask(mask)
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert sorted(each.name for each in tmp_path.iterdir()) == ["new", "out.vmfb"]


def test_a_failed_publication_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "out.vmfb"
    target.write_bytes(b"old")
    with pytest.raises(UsageError, match="cannot be written"):
        publish(tmp_path / "absent", target)
    assert target.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["out.vmfb"]


def test_places_that_cannot_be_written_are_found_early(tmp_path: Path) -> None:
    check_writable(tmp_path / "out.vmfb")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="is a directory"):
        check_writable(tmp_path)
    with pytest.raises(UsageError, match="cannot be written"):
        check_writable(tmp_path / "absent" / "out.vmfb")
