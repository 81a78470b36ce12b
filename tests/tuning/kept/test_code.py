"""Kept code is used only if it is, byte for byte, what this user wrote under the same key."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sartor.tuning.kept.code import KeptCode

KEYS = [digit * 64 for digit in "abc"]
ENTRIES = {key: bytes([number]) * 1000 for number, key in enumerate(KEYS)}


@pytest.fixture
def kept(tmp_path: Path) -> KeptCode:
    """A folder with the code of one module."""
    found = KeptCode(tmp_path / "code")
    found.add(ENTRIES)
    return found


def file_of(kept: KeptCode) -> Path:
    (path,) = kept.folder.iterdir()
    return path


def test_kept_code_comes_back(kept: KeptCode) -> None:
    assert kept.find(KEYS) == ENTRIES
    assert kept.find(KEYS[1:2]) == {KEYS[1]: ENTRIES[KEYS[1]]}
    assert kept.find(["d" * 64]) == {}
    assert kept.folder.stat().st_mode & 0o077 == 0


def test_what_is_forgotten_is_made_again(kept: KeptCode) -> None:
    assert kept.forget()
    assert not kept.forget()
    assert kept.find(KEYS) == {}
    kept.add(ENTRIES)
    assert kept.find(KEYS) == ENTRIES


def test_code_of_several_modules_is_found_together(kept: KeptCode) -> None:
    kept.add({"d" * 64: b"more"})
    assert kept.find([*KEYS, "d" * 64]) == ENTRIES | {"d" * 64: b"more"}


def test_a_damaged_entry_is_missing_and_can_be_added_again(kept: KeptCode) -> None:
    path = file_of(kept)
    content = bytearray(path.read_bytes())
    content[-1500] ^= 1
    path.write_bytes(content)
    assert kept.find(KEYS) == {key: ENTRIES[key] for key in (KEYS[0], KEYS[2])}
    kept.add({KEYS[1]: ENTRIES[KEYS[1]]})
    assert kept.find(KEYS) == ENTRIES


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2500])


def begin_with_another_line(path: Path) -> None:
    path.write_bytes(b"{}\n" + path.read_bytes())


def list_no_sizes(path: Path) -> None:
    path.write_bytes(b'[["a", "b", "c"]]\n')


def be_no_text(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\n" * 100)


def let_others_write(path: Path) -> None:
    path.chmod(0o622)


def link_elsewhere(path: Path) -> None:
    path.rename(path.parent.with_name("elsewhere"))
    path.symlink_to(path.parent.with_name("elsewhere"))


def make_a_folder_of_it(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "change",
    [cut, begin_with_another_line, list_no_sizes, be_no_text, let_others_write, link_elsewhere, make_a_folder_of_it],
)
def test_a_changed_file_is_not_used(kept: KeptCode, change: Callable[[Path], None]) -> None:
    change(file_of(kept))
    assert kept.find(KEYS) == {}


def test_code_under_the_key_of_other_code_is_not_used(kept: KeptCode) -> None:
    path = file_of(kept)
    path.write_bytes(path.read_bytes().replace(KEYS[0].encode(), b"d" * 64))
    assert kept.find(["d" * 64]) == {}


def test_files_that_were_not_used_for_longest_make_room(tmp_path: Path) -> None:
    kept = KeptCode(tmp_path / "code", limit=10_000)
    for number, key in enumerate(("used", "old", "new")):
        kept.add({key: b"x" * 2500})
        newest = max(kept.folder.iterdir(), key=lambda path: path.stat().st_mtime)
        os.utime(newest, (10 * number + 10, 10 * number + 10))
    assert kept.find(["used"])
    kept.add({"more": b"y" * 2500})
    assert sorted(kept.find(["used", "old", "new", "more"])) == ["more", "new", "used"]
    assert sum(path.stat().st_size for path in kept.folder.iterdir()) <= kept.limit


def test_what_exceeds_the_limit_is_not_kept(tmp_path: Path) -> None:
    kept = KeptCode(tmp_path / "code", limit=1000)
    kept.add(ENTRIES)
    assert kept.find(KEYS) == {}


def test_a_folder_that_cannot_be_made_only_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    # The system does not look into the second.
    for folder in (tmp_path / "file", tmp_path / ("x" * 300)):
        kept = KeptCode(folder / "code")
        kept.add(ENTRIES)
        assert kept.find(KEYS) == {}
        assert not kept.forget()
