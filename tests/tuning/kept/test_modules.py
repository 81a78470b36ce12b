"""A kept module is used only if it is, byte for byte, what this user wrote under the same key."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sartor.tuning.kept.modules import KeptModules

KEY, OTHER = "a" * 64, "b" * 64
CONTENT = bytes(range(256)) * 40


@pytest.fixture
def kept(tmp_path: Path) -> KeptModules:
    """A folder that holds one module."""
    found = KeptModules(tmp_path / "modules")
    module = tmp_path / "net.vmfb"
    module.write_bytes(CONTENT)
    found.keep(KEY, module, 123)
    return found


def file_of(kept: KeptModules, key: str = KEY) -> Path:
    return kept.folder / f"{key}.kept"


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


def claim_other_weights(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"[123,", b"[124,", 1))


def end_in_the_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


def write_a_header_of_another_kind(path: Path) -> None:
    path.write_bytes(b'{"weight_bytes": 123}\n' + CONTENT)


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
    claim_other_weights,
    end_in_the_header,
    write_a_header_of_another_kind,
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


def test_a_module_under_the_name_of_another_is_not_used(kept: KeptModules, tmp_path: Path) -> None:
    file_of(kept).rename(file_of(kept, OTHER))
    assert kept.restore(OTHER, tmp_path / "again.vmfb") is None


def test_modules_that_were_not_used_for_longest_make_room(tmp_path: Path) -> None:
    kept = KeptModules(tmp_path / "modules", limit=30_000)
    module = tmp_path / "net.vmfb"
    module.write_bytes(b"x" * 6000)
    for last_use, key in ((10, "used"), (20, "old"), (30, "new")):
        kept.keep(key, module, 0)
        os.utime(file_of(kept, key), (last_use, last_use))
    assert kept.restore("used", tmp_path / "again.vmfb") == 0
    for number in range(3):
        kept.keep(f"more{number}", module, 0)
        assert file_of(kept, "used").exists()
        assert sum(path.stat().st_size for path in kept.folder.iterdir()) <= kept.limit
    assert not file_of(kept, "old").exists()
    assert not file_of(kept, "new").exists()


def test_what_exceeds_the_limit_is_not_kept(tmp_path: Path) -> None:
    kept = KeptModules(tmp_path / "modules", limit=len(CONTENT))
    module = tmp_path / "net.vmfb"
    module.write_bytes(CONTENT)
    kept.keep(KEY, module, 0)
    assert kept.restore(KEY, tmp_path / "again.vmfb") is None


def test_a_folder_that_cannot_be_made_only_keeps_nothing(tmp_path: Path) -> None:
    module = tmp_path / "file"
    module.write_bytes(CONTENT)
    kept = KeptModules(module / "modules")
    kept.keep(KEY, module, 0)
    kept.remove(KEY)
    assert kept.restore(KEY, tmp_path / "again.vmfb") is None
