"""Moving a mapped file to huge pages, how much memory is free, and threads whose start nobody waits for."""

from __future__ import annotations

import _thread
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sartor.errors import UsageError
from sartor.runtime.mapping import free_memory, huge_pages, pages
from sartor.runtime.mapping.background import Background
from sartor.runtime.mapping.free_memory import free_bytes
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


_MIB = 1 << 20


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 100 MiB of free memory, and a process in the group a/b."""
    (tmp_path / "meminfo").write_text("MemTotal:  999999 kB\nMemAvailable:     102400 kB\n", encoding="ascii")
    (tmp_path / "cgroup").write_text("1:cpu:/x\n0::/a/b\n", encoding="ascii")
    (tmp_path / "groups/a/b").mkdir(parents=True)
    for name, file in {"_MACHINE": "meminfo", "_OWN_GROUP": "cgroup", "_GROUPS": "groups"}.items():
        monkeypatch.setattr(free_memory, name, tmp_path / file)
    return tmp_path


def _limit(group: Path, most: str, used: int, cached: int) -> None:
    (group / "memory.max").write_text(f"{most}\n", encoding="ascii")
    (group / "memory.current").write_text(f"{used}\n", encoding="ascii")
    (group / "memory.stat").write_text(f"anon 1\ninactive_file {cached}\nactive_file 5\n", encoding="ascii")


def test_it_is_what_the_machine_has(machine: Path) -> None:
    assert free_bytes() == 100 * _MIB


def test_groups_that_hold_the_process_limit_it(machine: Path) -> None:
    _limit(machine / "groups/a", str(70 * _MIB), 30 * _MIB, 10 * _MIB)
    assert free_bytes() == 50 * _MIB
    _limit(machine / "groups/a/b", str(20 * _MIB), 30 * _MIB, 0)
    assert free_bytes() == 0
    _limit(machine / "groups/a/b", "max", 30 * _MIB, 0)
    assert free_bytes() == 50 * _MIB


def test_in_a_container_the_root_of_what_it_sees_limits_it(machine: Path) -> None:
    (machine / "cgroup").write_text("0::/\n", encoding="ascii")
    _limit(machine / "groups", str(70 * _MIB), 30 * _MIB, 10 * _MIB)
    assert free_bytes() == 50 * _MIB


def test_it_may_be_unknown(machine: Path) -> None:
    for file in ("meminfo", "cgroup"):
        (machine / file).unlink()
    assert free_bytes() is None


def refused(*_: object) -> int:
    """What starting a thread does at the limit of threads."""
    raise RuntimeError("can't start new thread")


def test_work_is_waited_for_as_long_as_one_likes() -> None:
    may_end = threading.Event()
    thread = Background(may_end.wait)
    assert not thread.wait(0.01)
    may_end.set()
    assert thread.wait()
    assert thread.wait(0)


def test_a_thread_does_not_wait_for_itself() -> None:
    found: list[bool] = []
    started = threading.Event()

    def work() -> None:
        started.wait()
        found.append(thread.wait())

    thread = Background(work)
    started.set()
    assert thread.wait(30)
    assert found == [True]


def test_work_that_fails_is_over_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[object] = []
    told = threading.Event()

    def note(found: Any) -> None:
        reported.append(found.exc_value)
        told.set()

    def work() -> None:
        raise OSError("no memory")

    monkeypatch.setattr(sys, "unraisablehook", note)
    assert Background(work).wait(30)
    assert told.wait(30)
    assert str(reported[0]) == "no memory"


def test_work_that_no_thread_can_do_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_thread, "start_new_thread", refused)
    done: list[bool] = []
    thread = Background(lambda: done.append(True))
    assert not thread.has_begun
    assert thread.wait()
    assert not done


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_does_not_wait_for_a_thread_of_its_parent() -> None:
    may_end = threading.Event()
    thread = Background(may_end.wait)
    child = os.fork()
    if child == 0:
        os._exit(0 if thread.wait(0.01) else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    may_end.set()
    assert thread.wait()
