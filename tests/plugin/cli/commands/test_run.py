"""What ``sartor run`` leaves where its outputs cannot be written."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from sartor.cli.commands import run as command
from sartor.errors import UsageError


def _fail_in(folder: Path, written: str = "") -> None:
    with command._folder(folder):
        assert folder.is_dir()
        if written:
            (folder / written).touch()
        raise UsageError("no room")


def test_what_is_saved_is_the_array(tmp_path: Path) -> None:
    command._save(tmp_path / "y.npy", np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), np.arange(6.0).reshape(2, 3))


def test_a_folder_that_stays_empty_is_removed_with_those_made_for_it(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    for folder in (old / "new" / "newer", old):
        with pytest.raises(UsageError, match="no room"):
            _fail_in(folder)
        assert [*tmp_path.rglob("*")] == [old]
    with pytest.raises(UsageError, match="no room"):
        _fail_in(old / "new", "y.npy")
    assert (old / "new" / "y.npy").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_disk_that_is_full_is_called_so() -> None:
    with pytest.raises(OSError, match="No space left") as refused:
        command._save(Path("/dev/full"), np.zeros(2048))
    assert refused.value.errno == errno.ENOSPC


def test_each_output_has_a_file_of_its_own(tmp_path: Path) -> None:
    names = ["x__2", "x.", "x:", "x;"]
    assert len({*command._named_files(names, tmp_path).values()}) == len(names)
    long = [f"{'y' * 5000}{end}" for end in ("a", "b")]
    found = command._named_files(long, tmp_path)
    for path in found.values():
        path.write_bytes(b"")
    assert len(set(found.values())) == 2


def test_a_mean_is_finite_where_a_sum_is_not() -> None:
    assert command._statistics(np.full(4, 1.5e308)) == {"min": 1.5e308, "mean": 1.5e308, "max": 1.5e308}
