"""Mappings of files."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from sartor.runtime.mapping import pages
from sartor.runtime.mapping.mapped_file import MappedFile

Opened = Callable[[Path], MappedFile]


def test_who_opens_a_file_again_gets_the_same_memory(path: Path, opened: Opened) -> None:
    file = opened(path)
    assert opened(path) is file
    link = path.with_name("link")
    link.symlink_to(path)
    assert opened(link) is file
    assert opened(Path(shutil.copy(path, path.with_name("copy")))) is not file
    os.utime(path, (1, 1))
    assert opened(path) is not file


def test_huge_pages_can_lie_where_it_begins(path: Path, opened: Opened) -> None:
    assert opened(path).address % pages.HUGE == 0


def test_memory_lives_as_long_as_its_views(path: Path, opened: Opened) -> None:
    file = opened(path)
    file.reading.wait()
    content = file.content
    del file
    gc.collect()
    assert content[:100] == path.read_bytes()[:100]
    assert str(path) in Path("/proc/self/maps").read_text(encoding="utf-8")
    del content
    gc.collect()
    assert str(path) not in Path("/proc/self/maps").read_text(encoding="utf-8")


def test_a_file_that_is_replaced_by_another_stays_what_it_was(path: Path, opened: Opened) -> None:
    expected, file = path.read_bytes(), opened(path)
    other = path.with_name("other")
    other.write_bytes(b"something else")
    other.replace(path)
    file.check()
    assert file.content == expected
