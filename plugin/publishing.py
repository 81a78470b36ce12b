"""Publishing files: whole or not at all, over regular files only, and never over a file that the command uses."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

from sartor.errors import SystemRefusedError, UsageError
from sartor.workspace import FULL, partial_file

_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)

# Folders with the names of a process's open files.
_DESCRIPTORS = re.compile(r"/proc/\d+(/task/\d+)?/fd")
_ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_OWN_STATUS = Path("/proc/self/status")
# A multiple of a huge page.
_WRITTEN_AT_ONCE = 16 << 20

_Identity = str | tuple[int, int]


def check_current_folder() -> None:
    """Make sure that there is a folder from which relative paths lead anywhere.

    Raises:
        UsageError: if it was removed since the program was started in it.
    """
    try:
        os.getcwd()
    except OSError as error:
        name = os.environ.get("PWD", ".")
        raise UsageError(
            f"the current folder '{name}' is no longer there ({error.strerror}); change to one that is"
        ) from None


def check_writable(path: Path) -> None:
    """Make sure before the work that its result can be written.

    Raises:
        UsageError: if it cannot.
    """
    with _writing(path), partial_file(_replaced(path).parent):
        pass


def check_apart(outputs: Mapping[str, Path], used: Iterable[tuple[str, Path]]) -> None:
    """Make sure that every output can be written, and none over a file that is used or over another output.

    Files are the same if they have the same name, links resolved, or are hard links of each other.

    Args:
        outputs: what is written, by the option that names it.
        used: what each other file of the command is, in words, and the file.

    Raises:
        UsageError: if two coincide, an output cannot be written, or the current folder was removed.
    """
    check_current_folder()
    taken = {identity: what for what, path in used for identity in _identities(path)}
    for option, path in outputs.items():
        identities = _identities(path)
        other = next((taken[identity] for identity in identities if identity in taken), None)
        if other is not None:
            raise UsageError(f"{option} '{path}' would overwrite {other}; name another file")
        check_writable(path)
        taken |= dict.fromkeys(identities, f"what {option} writes")


def _identities(path: Path) -> tuple[_Identity, ...]:
    real = os.path.realpath(path)
    try:
        result = os.stat(real)
    except OSError:
        return (real,)
    return real, (result.st_dev, result.st_ino)


def _replaced(path: Path) -> Path:
    """The file that is replaced when ``path`` is written. Links are followed, so that they stay links.

    Raises:
        UsageError: if what is there is no regular file, or is a name of an open file, which stays with its old content.
        OSError: if it cannot be looked at.
    """
    if _is_descriptor(path):
        raise UsageError(f"'{path}' is a file that this process has open; name a file for the output")
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return Path(os.path.realpath(path))
    if not stat.S_ISREG(mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "no regular file")
        raise UsageError(f"'{path}' is {kind} and was left as it is; name a file for the output")
    return Path(os.path.realpath(path))


def _is_descriptor(path: Path) -> bool:
    """Whether a path is one of the system's names of open files, such as ``/dev/stdout``."""
    seen = set[Path]()
    while not _DESCRIPTORS.fullmatch(os.path.realpath(path.parent)):
        if path in seen or not path.is_symlink():
            return False
        seen.add(path)
        path = path.parent / os.readlink(path)
    return True


def publish(source: Path, target: Path) -> None:
    """Copy a finished file to where the user wants it, all of it or nothing.

    Raises:
        UsageError: if it cannot be written; what was there before is still there.
        SystemRefusedError: if there is no room for it.
    """
    with staged(source, target) as copy:
        copy.publish()


@dataclass(frozen=True)
class StagedFile:
    """A finished file in the folder where it belongs, not yet under its name.

    Attributes:
        path: where it is.
        target: where it belongs.
    """

    path: Path
    target: Path

    def publish(self) -> None:
        """Give it its name.

        Raises:
            UsageError: if that is not possible; what was there before is still there.
        """
        with _writing(self.target):
            os.replace(self.path, _replaced(self.target))


def publish_together(copies: Sequence[StagedFile]) -> None:
    """Give files their names in this order, all of them or none. Signals that ask the process to end wait meanwhile.

    Raises:
        UsageError: if that is not possible; what was there before is still there.
    """
    with _signals_held(), ExitStack() as stack:
        for copy in copies:
            stack.enter_context(_published(copy))


@contextmanager
def _signals_held() -> Iterator[None]:
    """Let signals that ask the process to end wait until the end of the block, which only the main thread can."""
    arrived: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in _ASKING if is_main}
    held = {number: handler for number, handler in before.items() if handler not in (None, signal.SIG_IGN)}
    try:
        for number in held:
            signal.signal(number, lambda number, _: arrived.append(number))
        yield
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)
        for signal_number in arrived:
            signal.raise_signal(signal_number)


@contextmanager
def _published(copy: StagedFile) -> Iterator[None]:
    """A published file; if the block fails, what was there before is put back, by a second name for it."""
    with _writing(copy.target):
        target = _replaced(copy.target)
        with _second_name(target) as old:
            is_new = not target.exists()
            copy.publish()
            try:
                yield
            except BaseException:
                if is_new:
                    target.unlink(missing_ok=True)
                elif old.exists():
                    os.replace(old, target)
                raise


@contextmanager
def _second_name(path: Path) -> Iterator[Path]:
    """Another name of a file, if there is one, which ends with the block. Without hard links there is no such file."""
    with _beside(path) as name, ExitStack() as stack:
        name.unlink()
        with suppress(OSError):
            # Files without a lock are taken for those of processes that were killed, and removed.
            fcntl.flock(stack.enter_context(path.open("rb")), fcntl.LOCK_SH | fcntl.LOCK_NB)
        with suppress(OSError):
            os.link(path, name)
        yield name


@contextmanager
def staged(source: Path, target: Path) -> Iterator[StagedFile]:
    """A copy of a file beside ``target``, which is gone at the end if it was not published.

    What is checked on the copy holds for the file that the user gets: publishing only renames it.

    Raises:
        UsageError: if it cannot be written.
        SystemRefusedError: if there is no room for it.
    """
    with ExitStack() as stack:
        with _writing(target):
            path = stack.enter_context(_beside(target))
            _copy(source, path)
            open_to_others(path)
        yield StagedFile(path, target)


@dataclass(frozen=True)
class Publication:
    """Files that get their names together at the end, or none of them; until then each lies beside its place.

    Attributes:
        others: what is written beside what the user of this object writes itself, by the option that names it.
    """

    others: Mapping[str, Path] = field(default_factory=dict)
    _copies: dict[Path, StagedFile] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    def stage(self, source: Path, target: Path) -> Path:
        """Copy a finished file to where ``target`` is; returns the copy's path.

        Raises:
            UsageError: if it cannot be written.
            SystemRefusedError: if there is no room for it.
        """
        self._copies[target] = self._stack.enter_context(staged(source, target))
        return self._copies[target].path

    @contextmanager
    def written(self, target: Path) -> Iterator[Path]:
        """An empty file to write to where ``target`` is.

        Raises:
            UsageError: if it cannot be written.
            SystemRefusedError: if there is no room for it.
        """
        with _writing(target):
            path = self._stack.enter_context(_beside(target))
            yield path
            open_to_others(path)
        self._copies[target] = StagedFile(path, target)

    def write(self, target: Path, text: str) -> None:
        """Write a text where ``target`` is.

        Raises:
            UsageError: if it cannot be written.
            SystemRefusedError: if there is no room for it.
        """
        with self.written(target) as path:
            # Names of files need not be UTF-8.
            path.write_text(text, encoding="utf-8", errors="backslashreplace")

    def drop(self, *targets: Path) -> None:
        """Remove what shall not be published, as far as it was staged."""
        for target in targets:
            if copy := self._copies.pop(target, None):
                copy.path.unlink(missing_ok=True)

    def place_of(self, target: Path) -> Path:
        """Where a file lies until it gets its name."""
        return self._copies[target].path


@contextmanager
def publication(others: Mapping[str, Path] | None = None) -> Iterator[Publication]:
    """Publish what is staged in the block at its end, or nothing if it fails.

    Args:
        others: as of the publication.

    Raises:
        UsageError: if files cannot get their names; what was there before is still there.
    """
    with ExitStack() as stack:
        files = Publication(others or {}, _stack=stack)
        yield files
        publish_together([*files._copies.values()])


def part_of(whole: Publication | None) -> AbstractContextManager[Publication]:
    """A publication that is published with others' files, or at the end of the block if there is no such."""
    return publication() if whole is None else nullcontext(whole)


def _copy(source: Path, target: Path) -> None:
    """Copy a file's content, written such that the page cache may keep it in huge pages.

    The first inference of a module that was just compiled then finds few pages missing. The file is buffered, because a
    raw write may store a part only, as on a full disk, without an error.
    """
    with source.open("rb") as content, target.open("wb") as copy:
        shutil.copyfileobj(content, copy, _WRITTEN_AT_ONCE)


@contextmanager
def written(target: Path) -> Iterator[Path]:
    """An empty file to write to, which replaces ``target`` at the end of the block, or nothing if that fails.

    Raises:
        UsageError: if it cannot be written; what was there before is still there.
        SystemRefusedError: if there is no room for it.
    """
    with _writing(target), _beside(target) as path:
        yield path
        open_to_others(path)
        StagedFile(path, target).publish()


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    with partial_file(_replaced(target).parent, target.suffix) as path:
        yield path


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        kind = SystemRefusedError if error.errno in FULL else UsageError
        raise kind(f"'{target}' cannot be written: {error.strerror or error}") from None


def open_to_others(path: Path) -> None:
    """Give a file the default permissions of a new file, 0o666 without the bits of the umask."""
    os.chmod(path, 0o666 & ~_umask())


def _umask() -> int:
    # To set it for a moment would change the permissions of files that other threads make meanwhile.
    with suppress(OSError):
        if match := re.search(r"(?m)^Umask:\s+([0-7]+)", _OWN_STATUS.read_text(encoding="ascii", errors="replace")):
            return int(match[1], 8)
    mask = os.umask(0)
    os.umask(mask)
    return mask
