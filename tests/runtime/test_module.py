"""How files are brought into memory."""

from __future__ import annotations

import errno
import mmap
import zipfile
from pathlib import Path

import numpy as np
import pytest

from sartor.errors import UsageError
from sartor.runtime import module as module_file
from sartor.runtime.driver.iree_runtime import parse_module
from sartor.runtime.driver.signature import Array
from sartor.runtime.module import check_module, has_huge_pages, open_module
from sartor.runtime.session import Session

needs_huge_pages = pytest.mark.skipif(not has_huge_pages(), reason="this system has no huge pages")


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What modules are parsed from; every file counts as large."""
    found: list[object] = []
    parse = parse_module

    def remember(content: bytes | mmap.mmap, label: str) -> object:
        found.append(content)
        return parse(content, label)

    monkeypatch.setattr(module_file, "parse_module", remember)
    monkeypatch.setattr(module_file, "_REACH_BYTES", 0)
    return found


def _is_private(memory: object) -> bool:
    """Whether memory is the process's own, which may be written; a mapped file may not."""
    assert isinstance(memory, mmap.mmap)
    try:
        memory[0] = memory[0]
    except TypeError:
        return False
    return True


@needs_huge_pages
def test_a_large_file_is_read_into_memory_of_its_own(model: Path, taken: list[object], feeds: dict[str, Array]) -> None:
    with Session(model) as read, Session(model, huge_pages=False) as mapped:
        assert [_is_private(each) for each in taken] == [True, False]
        np.testing.assert_array_equal(read.run(None, feeds), mapped.run(None, feeds))
    assert isinstance(taken[0], mmap.mmap)
    assert taken[0][:] == model.read_bytes()


def test_a_small_file_is_mapped(model: Path, taken: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_file, "_REACH_BYTES", model.stat().st_size)
    open_module(model, huge_pages=True)
    assert not _is_private(taken[0])


def test_without_huge_pages_files_are_mapped(
    model: Path, taken: list[object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    setting = tmp_path / "enabled"
    setting.write_text("always madvise [never]\n", encoding="ascii")
    monkeypatch.setattr(module_file, "_HUGE_PAGES", setting)
    has_huge_pages.cache_clear()
    open_module(model, huge_pages=True)
    has_huge_pages.cache_clear()
    assert not _is_private(taken[0])


@needs_huge_pages
def test_without_memory_a_large_file_is_mapped(
    model: Path, taken: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> mmap.mmap:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(module_file, "_read", fail)
    open_module(model, huge_pages=True)
    assert not _is_private(taken[0])


@needs_huge_pages
@pytest.mark.usefixtures("taken")
def test_a_truncated_file_is_refused_however_it_is_read(model: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.vmfb"
    cut.write_bytes(model.read_bytes()[:-100])
    with pytest.raises(UsageError, match="truncated"):
        open_module(cut, huge_pages=True)
    with pytest.raises(UsageError, match="the given content is damaged, it is truncated"):
        open_module(cut.read_bytes())
    cut.write_bytes(b"")
    with pytest.raises(UsageError, match="empty"):
        open_module(cut, huge_pages=True)


@needs_huge_pages
@pytest.mark.parametrize("reach", [0, 8 << 20], ids=["large", "small"])
def test_a_flipped_bit_is_found_where_the_file_is_read(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reach: int
) -> None:
    monkeypatch.setattr(module_file, "_REACH_BYTES", reach)
    content, damaged = bytearray(model.read_bytes()), tmp_path / "damaged.vmfb"
    with zipfile.ZipFile(model) as archive:
        parts = archive.infolist()
    assert len(parts) > 1
    for part in parts:
        place = part.header_offset + 200 + part.file_size // 2
        content[place] ^= 1
        damaged.write_bytes(content)
        for load in (Session, lambda path: Session(path.read_bytes()), check_module):
            with pytest.raises(UsageError, match=f"is damaged, the checksum of its part '{part.filename}' is wrong"):
                load(damaged)
        content[place] ^= 1
    damaged.write_bytes(content)
    check_module(damaged)
    assert Session(damaged).manifest == Session(model).manifest
