"""A kept value and its files are used only if they are, byte for byte, what this user wrote under the same key."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sartor.tuning.kept.values import KeptValues, file_state

KEY, OTHER = "a" * 64, "b" * 64
VALUE, FIRST, SECOND = b"value", bytes(range(256)) * 40, b"second"


def keep(kept: KeptValues, folder: Path, key: str = KEY) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "one.bin").write_bytes(FIRST)
    (folder / "two.bin").write_bytes(SECOND)
    files = [folder / "one.bin", folder / "two.bin"]
    kept.keep(key, VALUE, files, [*map(file_state, files)])


@pytest.fixture
def kept(tmp_path: Path) -> KeptValues:
    """A folder that holds one value, whose compilation has ended."""
    found = KeptValues(tmp_path / "imports")
    keep(found, tmp_path / "before")
    shutil.rmtree(tmp_path / "before")
    return found


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "now"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("links", [True, False])
def test_a_value_comes_back_with_its_files(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch, *, links: bool
) -> None:
    if not links:
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError("another disk")))
    kept = KeptValues(tmp_path / "imports")
    keep(kept, tmp_path / "before")
    assert kept.may_have(KEY[:16])
    assert not kept.may_have(OTHER[:16])
    assert kept.restore(OTHER, place) is None
    assert kept.restore(KEY, place) == VALUE
    assert [(place / name).read_bytes() for name in ("one.bin", "two.bin")] == [FIRST, SECOND]
    assert {path.stat().st_mode & 0o077 for path in [kept.folder, *kept.folder.iterdir()]} == {0}
    for path in kept.folder.iterdir():
        os.utime(path, (1, 1))
    kept.restore(KEY, place)
    assert all(path.stat().st_mtime > 1 for path in kept.folder.iterdir())
    # They stay where somebody else makes room.
    shutil.rmtree(kept.folder)
    assert (place / "one.bin").read_bytes() == FIRST


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def let_others_write(path: Path) -> None:
    path.chmod(0o666)


def lead_elsewhere(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [flip, cut, empty, let_others_write, lead_elsewhere, Path.unlink])
@pytest.mark.parametrize("name", [f"{KEY}.kept", f"{KEY}.0.kept", f"{KEY}.1.kept"])
def test_what_is_not_as_it_was_written_is_not_used(
    kept: KeptValues, place: Path, name: str, damage: Callable[[Path], None]
) -> None:
    damage(kept.folder / name)
    assert kept.restore(KEY, place) is None


def test_a_value_under_another_key_or_with_other_files_is_not_used(kept: KeptValues, place: Path) -> None:
    for path in [*kept.folder.iterdir()]:
        shutil.copyfile(path, path.with_name(path.name.replace(KEY, OTHER)))
        path.with_name(path.name.replace(KEY, OTHER)).chmod(0o600)
    assert kept.restore(OTHER, place) is None
    os.replace(kept.folder / f"{KEY}.1.kept", kept.folder / f"{KEY}.0.kept")
    assert kept.restore(KEY, place) is None


def test_who_writes_a_restored_file_anew_does_not_write_the_kept_one(kept: KeptValues, place: Path) -> None:
    kept.restore(KEY, place)
    kept.restore(KEY, place)
    assert kept.restore(KEY, place) == VALUE


def test_a_folder_that_cannot_be_looked_into_holds_nothing(tmp_path: Path, place: Path) -> None:
    kept = KeptValues(tmp_path / ("x" * 300) / "imports")
    keep(kept, tmp_path / "before")
    assert not kept.may_have(KEY[:16])
    assert kept.restore(KEY, place) is None


def test_what_was_not_used_for_longest_makes_room(tmp_path: Path, place: Path) -> None:
    kept = KeptValues(tmp_path / "imports", limit=90_000)
    for number, key in enumerate("abc"):
        keep(kept, tmp_path / "before", key)
        for path in kept.folder.glob(f"{key}*"):
            os.utime(path, (number, number))
    assert kept.restore("a", place) is None
    assert kept.restore("c", place) == VALUE
    assert sum(path.stat().st_size for path in kept.folder.iterdir()) <= kept.limit
    KeptValues(kept.folder, limit=0).keep("d", VALUE, [], [])
    assert not kept.may_have("d")


def test_files_may_get_other_names_and_a_removed_value_is_gone(kept: KeptValues, place: Path) -> None:
    assert kept.restore(KEY, place, ["three.bin"]) is None
    assert kept.restore(KEY, place, ["three.bin", "four.bin"]) == VALUE
    assert (place / "four.bin").read_bytes() == SECOND
    assert not (place / "one.bin").exists()
    kept.remove(KEY)
    assert not [*kept.folder.iterdir()]
