"""A kept module is used only if it is, byte for byte, what this user wrote under the same key."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sartor.tuning.kept.modules import KeptModules

KEY, OTHER = "a" * 64, "b" * 64
CONTENT = bytes(range(256)) * 40


def keep(kept: KeptModules, module: Path, key: str = KEY, weight_bytes: int = 123) -> None:
    if (hashed := kept.hashed(module)) is not None:
        kept.keep(key, hashed, weight_bytes)


@pytest.fixture
def kept(tmp_path: Path) -> KeptModules:
    """A folder that holds one module, whose compilation has ended."""
    found = KeptModules(tmp_path / "modules")
    module = tmp_path / "net.vmfb"
    module.write_bytes(CONTENT)
    keep(found, module)
    module.unlink()
    return found


def file_of(kept: KeptModules, key: str = KEY) -> Path:
    return kept.folder / f"{key}.0.kept"


def told(kept: KeptModules) -> Path:
    """The file that says how many bytes the weights have."""
    return kept.folder / f"{KEY}.kept"


def test_a_kept_module_comes_back(kept: KeptModules, tmp_path: Path) -> None:
    target = tmp_path / "again.vmfb"
    assert kept.restore(KEY, target) == 123
    assert target.read_bytes() == CONTENT
    assert kept.folder.stat().st_mode & 0o077 == 0


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-7] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def let_others_write(path: Path) -> None:
    path.chmod(0o622)


def link_elsewhere(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def make_a_folder_of_it(path: Path) -> None:
    path.unlink()
    path.mkdir()


CHANGES = (
    flip,
    cut,
    let_others_write,
    link_elsewhere,
    make_a_folder_of_it,
    Path.unlink,
)


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_file_is_not_used(kept: KeptModules, tmp_path: Path, change: Callable[[Path], None]) -> None:
    change(file_of(kept))
    target = tmp_path / "again.vmfb"
    assert kept.restore(KEY, target) is None
    assert not target.exists()


@pytest.mark.parametrize("other", [b"124", b"", b"x"])
def test_what_is_said_of_it_may_not_change(kept: KeptModules, tmp_path: Path, other: bytes) -> None:
    line, number = told(kept).read_bytes().split(b"\n")
    assert number == b"123"
    told(kept).write_bytes(line + b"\n" + other)
    assert kept.restore(KEY, tmp_path / "again.vmfb") is None
    assert not (tmp_path / "again.vmfb").exists()


def test_a_module_that_changed_since_its_hash_was_taken_is_not_kept(tmp_path: Path) -> None:
    kept, module = KeptModules(tmp_path / "modules"), tmp_path / "net.vmfb"
    module.write_bytes(CONTENT)
    hashed = kept.hashed(module)
    assert hashed is not None
    module.write_bytes(CONTENT + b"more")
    kept.keep(KEY, hashed, 123)
    assert kept.restore(KEY, tmp_path / "again.vmfb") is None


def test_a_module_under_the_name_of_another_is_not_used(kept: KeptModules, tmp_path: Path) -> None:
    file_of(kept).rename(file_of(kept, OTHER))
    told(kept).rename(kept.folder / f"{OTHER}.kept")
    assert kept.restore(OTHER, tmp_path / "again.vmfb") is None


def test_modules_that_were_not_used_for_longest_make_room(tmp_path: Path) -> None:
    kept = KeptModules(tmp_path / "modules", limit=310_000)
    module = tmp_path / "net.vmfb"
    module.write_bytes(b"x" * 60_000)
    for last_use, key in ((10, "used"), (20, "old"), (30, "new")):
        copy = tmp_path / f"{key}.vmfb"
        copy.write_bytes(module.read_bytes())
        keep(kept, copy, key, 0)
        for path in kept.folder.glob(f"{key}*"):
            os.utime(path, (last_use, last_use))
    assert kept.restore("used", tmp_path / "again.vmfb") == 0
    for number in range(3):
        keep(kept, module, f"more{number}", 0)
        assert file_of(kept, "used").exists()
        assert sum(path.stat().st_size for path in kept.folder.iterdir()) <= kept.limit
    assert not file_of(kept, "old").exists()
    assert not file_of(kept, "new").exists()


def test_what_exceeds_the_limit_is_not_kept(tmp_path: Path) -> None:
    kept = KeptModules(tmp_path / "modules", limit=len(CONTENT))
    module = tmp_path / "net.vmfb"
    module.write_bytes(CONTENT)
    assert kept.hashed(module) is None


def test_a_folder_that_cannot_be_made_only_keeps_nothing(tmp_path: Path) -> None:
    module = tmp_path / "file"
    module.write_bytes(CONTENT)
    kept = KeptModules(module / "modules")
    keep(kept, module)
    kept.remove(KEY)
    assert kept.restore(KEY, tmp_path / "again.vmfb") is None
    assert kept.hashed(tmp_path / "gone") is None
