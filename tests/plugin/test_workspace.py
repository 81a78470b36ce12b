"""Temporary folders: gone afterwards, and never somebody else's."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sartor.errors import UsageError
from sartor.tuning.workers.calls import open_pool
from sartor.workspace import TemporaryFolderError, check_temporary_name, partial_file, workspace

_HOLD = (
    "import sys, tempfile; from pathlib import Path; from sartor.workspace import {name}; where = Path(sys.argv[1])\n"
)
_FOLDER = (
    _HOLD.format(name="workspace") + "with workspace() as folder:\n"
    " (folder / 'tmp').mkdir(); (folder / 'tmp' / 'large').write_bytes(b'x' * 1000)\n"
    " print(folder, flush=True); sys.stdin.read()\n"
)
_FILE = (
    _HOLD.format(name="partial_file") + "with partial_file(where, '.vmfb') as path:\n"
    " path.write_bytes(b'x' * 1000); print(path, flush=True); sys.stdin.read()\n"
)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's temporary folder, for this process and those that it starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture(params=[_FOLDER, _FILE], ids=["folder", "file"])
def other(request: pytest.FixtureRequest, temporary: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another process that works in a folder or on a file, and which."""
    command = [sys.executable, "-c", request.param, str(temporary)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def sweep(temporary: Path) -> None:
    with workspace(), partial_file(temporary):
        pass


def test_nothing_is_left(temporary: Path) -> None:
    with workspace() as folder, partial_file(folder) as path:
        (folder / "deep" / "er").mkdir(parents=True)
        (folder / "link").symlink_to(temporary)
        path.write_bytes(b"weights")
        assert folder.parent == temporary
        assert folder.stat().st_mode & 0o077 == 0
    assert list(temporary.iterdir()) == []


def test_what_was_renamed_stays(temporary: Path) -> None:
    with partial_file(temporary) as path:
        path.write_bytes(b"module")
        os.replace(path, temporary / "model.vmfb")
    assert [each.name for each in temporary.iterdir()] == ["model.vmfb"]


def test_what_a_killed_process_left_is_removed(other: tuple[subprocess.Popen[str], Path], temporary: Path) -> None:
    process, path = other
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert path.exists()
    sweep(temporary)
    assert list(temporary.iterdir()) == []


def test_what_a_living_process_works_on_stays(other: tuple[subprocess.Popen[str], Path], temporary: Path) -> None:
    process, path = other
    sweep(temporary)
    assert path.exists()
    process.communicate()
    assert process.returncode == 0
    assert list(temporary.iterdir()) == []


def test_a_process_that_ends_within_removes_what_it_had(temporary: Path) -> None:
    code = "import sys; from sartor.workspace import workspace; w = workspace(); w.__enter__(); sys.exit(3)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 3
    assert list(temporary.iterdir()) == []


def test_a_forked_process_removes_nothing(temporary: Path) -> None:
    code = (
        "import os, sys; from sartor.workspace import workspace\n"
        "with workspace() as folder:\n"
        " if os.fork() == 0: sys.exit()\n"
        " os.wait(); print(folder.exists())"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.endswith("True\n")


def test_what_is_not_provably_ours_stays(temporary: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / ".sartor-lock").touch()
    (elsewhere / "precious").touch()
    (temporary / "sartor-link").symlink_to(elsewhere)
    (temporary / "sartor-notes").mkdir()
    (temporary / "sartor-notes" / "precious").touch()
    linked = temporary / "sartor-linked-lock"
    linked.mkdir()
    (linked / ".sartor-lock").symlink_to(elsewhere / ".sartor-lock")
    (temporary / ".sartor-part-link").symlink_to(elsewhere / "precious")
    os.mkfifo(temporary / ".sartor-part-pipe")
    before = sorted(temporary.iterdir())
    sweep(temporary)
    assert sorted(temporary.iterdir()) == before
    assert sorted(path.name for path in elsewhere.iterdir()) == [".sartor-lock", "precious"]


def age(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


def halfway(temporary: Path) -> list[Path]:
    """What kills leave between the making of something and its lock."""
    empty, nameless = temporary / "sartor-0123456789abcdef", temporary / "sartor-123456789abcdef0"
    part = temporary / ".sartor-part-0123456789abcdef.vmfb.new"
    for folder in (empty, nameless):
        folder.mkdir()
    (nameless / ".sartor-lock.new").touch()
    part.touch()
    return [empty, nameless, part]


def test_what_was_killed_before_it_had_its_lock_is_removed_when_it_is_old(temporary: Path) -> None:
    made = halfway(temporary)
    sweep(temporary)
    assert all(each.exists() for each in made), "who made it may be about to lock it"
    for each in made:
        age(each, 2 * 3600)
    sweep(temporary)
    assert list(temporary.iterdir()) == []


def test_what_is_old_but_locked_or_in_use_stays(temporary: Path) -> None:
    empty, nameless, part = made = halfway(temporary)
    (empty / "precious").touch()
    notes = temporary / "sartor-notes"
    notes.mkdir()
    with (nameless / ".sartor-lock.new").open("r+") as lock, part.open("r+") as other:
        for each in (lock, other):
            fcntl.flock(each, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for path in (*made, notes):
            age(path, 2 * 3600)
        sweep(temporary)
    assert all(each.exists() for each in (*made, notes))
    assert (empty / "precious").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_belongs_to_others_stays(temporary: Path) -> None:
    folder = temporary / "sartor-theirs"
    folder.mkdir()
    (folder / ".sartor-lock").touch()
    (temporary / ".sartor-part-theirs").touch()
    for path in (folder, temporary / ".sartor-part-theirs"):
        os.chown(path, 12345, 12345)
    sweep(temporary)
    assert len(list(temporary.iterdir())) == 2


@pytest.mark.parametrize("name", ["a b", "it's", 'say "', "a$b", "a;b", "100%", "a\nb", "a|b"])
def test_a_name_that_the_linker_does_not_take(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / name))
    with pytest.raises(TemporaryFolderError, match="IREE's linker does not take: set TMPDIR to another folder"):
        check_temporary_name()
    with pytest.raises(UsageError, match="set TMPDIR"), open_pool(1):
        pass


@pytest.mark.parametrize("name", ["äöü", "a,b", "a-b_c.d+e=f@g:h", "~a#"])
def test_a_name_that_it_takes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / name))
    check_temporary_name()
