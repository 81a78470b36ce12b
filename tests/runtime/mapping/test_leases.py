"""Leases on files."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sartor.runtime.mapping.leases import Lease, give_back, take


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
