"""Mappings of files, and leases on them."""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sartor.errors import UsageError
from sartor.runtime.mapping import leases, mapped_file, pages, reading
from sartor.runtime.mapping.leases import Lease, give_back, take
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


def test_who_opens_a_file_while_its_memory_is_given_back_gets_other_memory(
    path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It crashed: what gives memory back lets other threads run, which got it once more."""
    file = opened(path)
    file.reading.wait()
    address, handle, release = file.address, file.handle, pages.release
    found, released = list[MappedFile](), list[int]()
    assert handle is not None

    def open_meanwhile(address: int, size: int) -> None:
        released.append(address)
        if len(released) == 1:
            with pytest.raises(OSError, match="descriptor"):
                os.fstat(handle)
            found.append(opened(path))
        release(address, size)

    monkeypatch.setattr(pages, "release", open_meanwhile)
    del file
    gc.collect()
    assert released.count(address) == 1
    assert found[0].address != address
    assert found[0].content == path.read_bytes()


def test_reading_a_file_that_shrinks_ends(path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    advise, may_go_on = pages.advise, threading.Event()

    def held_up(address: int, size: int, advice: int) -> bool:
        if advice == pages.POPULATE_READ:
            may_go_on.wait()
        return advise(address, size, advice)

    monkeypatch.setattr(pages, "advise", held_up)
    monkeypatch.setattr(reading, "_LEAST", pages.HUGE)
    file = opened(path)
    os.truncate(path, pages.HUGE)
    may_go_on.set()
    # Nothing touches what is gone, which would end the process; the second part is the last that is tried.
    file.reading.wait()
    assert len(file.reading.steps) == 2
    with pytest.raises(UsageError, match="was changed while it was open"):
        file.check()


def test_a_file_is_read_whole_in_parts_that_grow(path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_LEAST", 4096)
    monkeypatch.setattr(reading, "_LONG_NS", 10**10)
    file = opened(path)
    file.reading.wait()
    sizes = [step.size for step in file.reading.steps]
    assert sizes[:3] == [4096, 8192, 16384]
    assert sum(sizes) == path.stat().st_size


def test_calls_that_take_long_stay_small(path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_LEAST", pages.HUGE)
    monkeypatch.setattr(reading, "_LONG_NS", -1)
    file = opened(path)
    file.reading.wait()
    assert [step.size for step in file.reading.steps] == [pages.HUGE, pages.HUGE, 12_345]


def test_who_was_forked_meanwhile_keeps_no_lease(path: Path, opened: Opened) -> None:
    file = opened(path)
    assert file.handle is not None
    if leases.take(file.handle) is not leases.Lease.HELD:
        pytest.skip("this file system has no leases")
    # A forked process has the same open file.
    forked = os.dup(file.handle)
    try:
        file.close_file()
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    finally:
        os.close(forked)


def child_succeeds(work: Callable[[], bool]) -> bool:
    """Whether a forked process gives True, and does not hang."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(20)
            status = 0 if work() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_who_was_forked_while_others_open_and_move_files_maps_anew(path: Path, opened: Opened) -> None:
    """It waited for ever for threads that had stayed with its parent."""
    file, expected = opened(path), path.read_bytes()

    def open_again() -> bool:
        other = opened(path)
        with other.moving:
            return other is not file and other.content == expected and file.content == expected

    with mapped_file._OPENING, file.moving:
        assert child_succeeds(open_again)
    assert opened(path) is file


def test_who_was_forked_shares_what_is_whole(path: Path, opened: Opened) -> None:
    """Each of a server's processes had a copy of all weights."""
    file, verified = opened(path), list[str]()
    file.reading.wait()
    file._verify = lambda content, label: verified.append(label)

    def is_shared() -> bool:
        other = opened(path)
        with other.moving:
            return other is file

    file.own(file.size - 1)
    assert not child_succeeds(is_shared)
    file.own(1)
    assert verified == [file.label]
    with file.moving:
        assert child_succeeds(is_shared)


def test_a_forked_process_leaves_its_parent_the_lease(path: Path, opened: Opened) -> None:
    kept = [opened(path)]
    kept[0].reading.wait()
    handle = kept[0].handle
    assert handle is not None
    if leases.take(handle) is not leases.Lease.HELD:
        pytest.skip("this file system has no leases")

    def forget() -> bool:
        kept.clear()
        gc.collect()
        return not os.path.exists(f"/proc/self/fd/{handle}")

    assert child_succeeds(forget)
    assert fcntl.fcntl(handle, fcntl.F_GETLEASE) == fcntl.F_RDLCK


def test_a_file_that_is_replaced_by_another_stays_what_it_was(path: Path, opened: Opened) -> None:
    expected, file = path.read_bytes(), opened(path)
    other = path.with_name("other")
    other.write_bytes(b"something else")
    other.replace(path)
    file.check()
    assert file.content == expected


@pytest.fixture
def handle(tmp_path: Path) -> int:
    """A file that is open for reading, and can be leased."""
    path = tmp_path / "file"
    path.write_bytes(b"content")
    handle = os.open(path, os.O_RDONLY)
    if take(handle) is not Lease.HELD:
        os.close(handle)
        pytest.skip("this file system has no leases")
    give_back(handle)
    return handle


def test_who_cuts_the_file_waits(tmp_path: Path, handle: int) -> None:
    assert take(handle) is Lease.HELD
    cutter = subprocess.Popen([sys.executable, "-c", "import os, sys; os.truncate(sys.argv[1], 1)", tmp_path / "file"])
    with pytest.raises(subprocess.TimeoutExpired):
        cutter.wait(0.5)
    assert os.fstat(handle).st_size == 7
    give_back(handle)
    assert cutter.wait(20) == 0
    assert os.fstat(handle).st_size == 1
    os.close(handle)


def test_who_asks_in_this_process_waits_too_and_is_not_ended(tmp_path: Path, handle: int) -> None:
    take(handle)
    threading.Timer(0.2, give_back, [handle]).start()
    (tmp_path / "file").write_bytes(b"new")
    os.close(handle)


def test_there_is_none_while_somebody_may_write(tmp_path: Path, handle: int) -> None:
    with (tmp_path / "file").open("r+b"):
        assert take(handle) is Lease.WRITTEN
    assert take(handle) is Lease.HELD
    os.close(handle)


def test_what_cannot_be_leased_is_refused() -> None:
    reader, writer = os.pipe()
    assert take(reader) is Lease.REFUSED
    give_back(reader)
    os.close(reader)
    os.close(writer)
