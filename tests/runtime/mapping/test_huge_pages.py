"""Moving a mapped file to huge pages."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sartor.errors import UsageError
from sartor.runtime.mapping import huge_pages, pages
from sartor.runtime.mapping.huge_pages import move_to_huge_pages
from sartor.runtime.mapping.mapped_file import MappedFile
from sartor.runtime.mapping.overlap import Takeover

Opened = Callable[[Path], MappedFile]


def test_content_and_address_stay_while_blocks_are_moved(path: Path, opened: Opened) -> None:
    expected, file = path.read_bytes(), opened(path)
    before = file.content
    for end in (1, 2, 3):
        assert not file.is_own
        assert move_to_huge_pages(file)
        assert file.own_bytes == min(end * pages.HUGE, file.size)
        assert before == expected
    assert file.is_own
    assert file.handle is None
    assert not move_to_huge_pages(file)
    assert file.content == expected
    assert _protection(file.address).startswith("r--")


def test_what_is_needed_first_is_moved_first(path: Path, opened: Opened) -> None:
    expected, file = path.read_bytes(), opened(path)
    file.move_first(pages.HUGE + 5)
    parts = []
    while not file.is_own:
        parts.append(file.next_part(pages.HUGE))
        assert move_to_huge_pages(file)
        file.move_first(0)
        assert file.content == expected
    assert [begin for begin, _ in parts] == [pages.HUGE, 2 * pages.HUGE, 0]
    assert sum(size for _, size in parts) == file.size
    assert file.handle is None


def test_weights_of_the_plan_that_takes_over_are_moved_first(path: Path, opened: Opened) -> None:
    file = opened(path)
    Takeover("a file", "first", "later", 1 << 20).order([file])
    assert file.next_part(pages.HUGE)[0] == pages.HUGE


def test_what_is_moved_does_not_depend_on_the_file(path: Path, opened: Opened) -> None:
    expected, file = path.read_bytes(), opened(path)
    while move_to_huge_pages(file):
        pass
    path.write_bytes(b"")
    file.check()
    assert file.content == expected


def test_others_read_the_same_while_blocks_are_moved(path: Path, opened: Opened) -> None:
    expected, file = path.read_bytes(), opened(path)
    wrong, done = [], threading.Event()

    def read() -> None:
        content = file.content
        while not done.is_set():
            wrong.append(content != expected)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    while move_to_huge_pages(file):
        pass
    done.set()
    for thread in threads:
        thread.join()
    assert wrong
    assert not any(wrong)


@pytest.mark.parametrize("moved", [0, 1])
@pytest.mark.parametrize("change", ["cut", "written"])
def test_a_changed_file_is_not_moved_and_reported(path: Path, opened: Opened, moved: int, change: str) -> None:
    file = opened(path)
    for _ in range(moved):
        move_to_huge_pages(file)
    file.check()
    with path.open("r+b") as writer:
        if change == "cut":
            writer.truncate(pages.HUGE)
        else:
            writer.seek(pages.HUGE)
            writer.write(b"something else")
    assert not move_to_huge_pages(file)
    assert file.own_bytes == moved * pages.HUGE
    with pytest.raises(UsageError, match=r"weights' was changed while it was open.*open it again"):
        file.check()


def test_without_memory_the_rest_stays_mapped(path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, file = path.read_bytes(), opened(path)
    free = iter([1 << 30, 80 << 10, 1 << 30])
    monkeypatch.setattr(huge_pages, "free_bytes", lambda: next(free))
    assert move_to_huge_pages(file)
    assert not move_to_huge_pages(file)
    assert file.own_bytes == pages.HUGE
    file.check()
    assert file.content == expected


def test_where_memory_is_refused_the_file_stays_mapped(
    path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(12, "Cannot allocate memory")

    expected, file = path.read_bytes(), opened(path)
    for call in ("allocate", "move"):
        with monkeypatch.context() as patch:
            patch.setattr(pages, call, refuse)
            assert not move_to_huge_pages(file)
        assert file.content == expected
    assert move_to_huge_pages(file)


def _protection(address: int) -> str:
    """How a process may use its memory at an address."""
    for line in Path("/proc/self/maps").read_text(encoding="ascii").splitlines():
        span, protection, *_ = line.split()
        begin, end = (int(part, 16) for part in span.split("-"))
        if begin <= address < end:
            return protection
    return ""
