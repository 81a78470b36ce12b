"""A file of several blocks, mapped."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sartor.runtime.mapping import huge_pages, pages
from sartor.runtime.mapping.mapped_file import MappedFile, map_file

Opened = Callable[[Path], MappedFile]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of one huge page."""
    if not pages.CAN_MOVE:
        pytest.skip("this system cannot move memory")
    monkeypatch.setattr(huge_pages, "BLOCK", pages.HUGE)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two huge pages and a part of a third, of random content."""
    path = tmp_path / "weights"
    path.write_bytes(os.urandom(2 * pages.HUGE + 12_345))
    return path


@pytest.fixture
def opened() -> Opened:
    """Maps a file."""

    def accept(content: memoryview, label: str) -> None:
        pass

    def map_it(path: Path) -> MappedFile:
        with path.open("rb") as file:
            return map_file(path, file.fileno(), accept)

    return map_it
