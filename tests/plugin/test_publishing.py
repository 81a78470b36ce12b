"""Files are published whole or not at all."""

from __future__ import annotations

import errno
import os
import signal
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sartor.errors import SystemRefusedError, UsageError
from sartor.publishing import (
    Publication,
    check_apart,
    check_writable,
    part_of,
    publication,
    publish,
    publish_together,
    staged,
    written,
)


def test_a_published_file_replaces_the_old_one(tmp_path: Path) -> None:
    source, target = tmp_path / "new", tmp_path / "out.vmfb"
    source.write_bytes(b"new")
    target.write_bytes(b"old")
    mask = os.umask(0o027)
    try:
        publish(source, target)
    finally:
        os.umask(mask)
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "out.vmfb"]


def test_a_failed_publication_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "out.vmfb"
    target.write_bytes(b"old")
    with pytest.raises(UsageError, match="cannot be written"):
        publish(tmp_path / "absent", target)
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.vmfb"]


def test_places_that_cannot_be_written_are_found_early(tmp_path: Path) -> None:
    check_writable(tmp_path / "out.vmfb")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="is a directory"):
        check_writable(tmp_path)
    with pytest.raises(UsageError, match="cannot be written"):
        check_writable(tmp_path / "absent" / "out.vmfb")


@pytest.fixture
def special(tmp_path: Path) -> Iterator[dict[str, Path]]:
    """Things that files must not replace, by what they are called in errors."""
    pipe, bound, folder = (tmp_path / name for name in ("pipe", "socket", "folder"))
    os.mkfifo(pipe)
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(bound))
        yield {"a pipe": pipe, "a socket": bound, "a directory": folder, "a device": Path("/dev/null")}


@pytest.mark.parametrize("kind", ["a pipe", "a socket", "a directory", "a device"])
def test_only_regular_files_are_replaced(special: dict[str, Path], tmp_path: Path, kind: str) -> None:
    """The device too, which root could replace."""
    source, there, link = _source(tmp_path), special[kind], tmp_path / "link"
    link.symlink_to(there)
    before = there.stat()
    for path in (there, link):
        for attempt in (check_writable, lambda target: publish(source, target), _write):
            with pytest.raises(UsageError, match=f"'{path}' is {kind} and was left as it is"):
                attempt(path)
    assert (there.stat().st_mode, there.stat().st_ino) == (before.st_mode, before.st_ino)
    assert link.is_symlink()


@pytest.mark.parametrize("name", ["/dev/fd/{}", "/proc/self/fd/{}", "{folder}/link"])
def test_names_of_open_files_are_refused(tmp_path: Path, name: str) -> None:
    """As ``/dev/stdout``: who has the file open would go on with the one that was replaced."""
    with (tmp_path / "out").open("wb") as opened:
        (tmp_path / "link").symlink_to(f"/dev/fd/{opened.fileno()}")
        path = Path(name.format(opened.fileno(), folder=tmp_path))
        for attempt in (check_writable, lambda target: publish(_source(tmp_path), target)):
            with pytest.raises(UsageError, match=f"'{path}' is a file that this process has open"):
                attempt(path)
        assert os.fstat(opened.fileno()).st_nlink == 1


def _source(folder: Path) -> Path:
    source = folder / "new"
    source.write_bytes(b"new")
    return source


def _write_half(path: Path) -> None:
    with written(path) as new:
        new.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _write(path: Path) -> None:
    with written(path) as new:
        new.write_bytes(b"new")


def test_a_device_that_appears_meanwhile_is_not_replaced(special: dict[str, Path], tmp_path: Path) -> None:
    target = tmp_path / "out.vmfb"
    with staged(_source(tmp_path), target) as copy:
        target.hardlink_to(special["a pipe"])
        with pytest.raises(UsageError, match="is a pipe"):
            copy.publish()


def test_links_are_followed_and_stay(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    for name in ("there", "not yet"):
        link, target = tmp_path / f"link to {name}", tmp_path / "elsewhere" / name
        link.symlink_to(target)
        if name == "there":
            target.write_bytes(b"old")
        _write(link)
        assert link.is_symlink()
        assert target.read_bytes() == b"new"
    assert sorted(path.name for path in (tmp_path / "elsewhere").iterdir()) == ["not yet", "there"]


def test_what_fails_while_it_is_written_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    target.write_bytes(b"old")
    with pytest.raises(SystemRefusedError, match=r"plan.json' cannot be written: No space left"):
        _write_half(target)
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_no_two_files_of_a_command_coincide(tmp_path: Path) -> None:
    model, hard, link = tmp_path / "model.onnx", tmp_path / "hard", tmp_path / "link"
    model.write_bytes(b"model")
    hard.hardlink_to(model)
    link.symlink_to(tmp_path / "out.vmfb")
    for output in (model, hard, tmp_path / "." / "model.onnx"):
        with pytest.raises(UsageError, match=r"-o '.*' would overwrite the model; name another file"):
            check_apart({"-o": output}, [("the model", model)])
    with pytest.raises(UsageError, match=r"--save-plan '.*' would overwrite what -o writes"):
        check_apart({"-o": tmp_path / "out.vmfb", "--save-plan": link}, [("the model", model)])
    check_apart({"-o": tmp_path / "out.vmfb", "--save-plan": tmp_path / "plan.json"}, [("the model", model)])
    assert model.read_bytes() == b"model"


@pytest.mark.parametrize("old", [b"old", None], ids=["replaced", "new"])
@pytest.mark.parametrize("fails", [True, False], ids=["fails", "succeeds"])
def test_files_are_published_together_or_not_at_all(tmp_path: Path, old: bytes | None, fails: bool) -> None:
    source, folder = _source(tmp_path), tmp_path / "out"
    folder.mkdir()
    weights, module = folder / "net.irpa", folder / "net.vmfb"
    if old is not None:
        weights.write_bytes(old)
    with ExitStack() as stack:
        copies = [stack.enter_context(staged(source, each)) for each in (weights, module)]
        if fails:
            module.mkdir()
            stack.enter_context(pytest.raises(UsageError, match=r"net.vmfb' is a directory"))
        publish_together(copies)
    left = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    before = {} if old is None else {"net.irpa": old}
    assert left == (before if fails else {"net.irpa": b"new", "net.vmfb": b"new"})


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A module that was there before, in a folder of its own."""
    path = tmp_path / "out" / "net.vmfb"
    path.parent.mkdir()
    path.write_bytes(b"old")
    return path


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _stage(files: Publication, source: Path, module: Path) -> None:
    """Stage a module and its plan."""
    place = files.stage(source, module)
    assert place == files.place_of(module)
    assert (place.parent, place.suffix, place.read_bytes()) == (module.parent, ".vmfb", b"new")
    files.write(module.with_name("plan.json"), "plan")


def test_a_publication_is_published_at_its_end(tmp_path: Path, module: Path) -> None:
    with publication({}) as files:
        with part_of(files) as same:
            _stage(same, _source(tmp_path), module)
        assert module.read_bytes() == b"old"
    assert module.read_bytes() == b"new"
    assert module.with_name("plan.json").read_text() == "plan"
    assert _names(module.parent) == ["net.vmfb", "plan.json"]


def test_a_text_may_have_names_of_files_that_are_no_text(tmp_path: Path) -> None:
    target = tmp_path / os.fsdecode(b"r\xff.html")
    with publication({}) as files:
        files.write(target, target.name)
    assert target.read_text(encoding="utf-8") == "r\\udcff.html"


def test_a_publication_that_fails_replaces_nothing(tmp_path: Path, module: Path) -> None:
    with ExitStack() as stack:
        stack.enter_context(pytest.raises(UsageError, match=r"report.html' cannot be written"))
        files = stack.enter_context(publication({}))
        _stage(files, _source(tmp_path), module)
        files.write(tmp_path / "absent" / "report.html", "report")
    assert module.read_bytes() == b"old"
    assert _names(module.parent) == ["net.vmfb"]


def test_what_is_dropped_is_not_published(tmp_path: Path, module: Path) -> None:
    with part_of(None) as files:
        _stage(files, _source(tmp_path), module)
        files.drop(module, tmp_path / "never staged")
        assert len(_names(module.parent)) == 2
    assert module.read_bytes() == b"old"
    assert _names(module.parent) == ["net.vmfb", "plan.json"]


def test_signals_wait_until_all_files_have_their_names(
    tmp_path: Path, module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each renaming sends one."""
    rename = os.replace

    def interrupted(source: Path, target: Path) -> None:
        rename(source, target)
        os.kill(os.getpid(), signal.SIGHUP)

    def end(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGHUP, end)
    monkeypatch.setattr(os, "replace", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt), publication({}) as files:
            _stage(files, _source(tmp_path), module)
        assert signal.getsignal(signal.SIGHUP) is end
    finally:
        signal.signal(signal.SIGHUP, before)
    assert module.read_bytes() == b"new"
    assert _names(module.parent) == ["net.vmfb", "plan.json"]


def test_other_threads_publish_too(tmp_path: Path, module: Path) -> None:
    def run() -> None:
        with publication({}) as files:
            _stage(files, _source(tmp_path), module)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert module.read_bytes() == b"new"
