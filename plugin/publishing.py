"""Publishing files: whole or not at all, over regular files only, and never over a file that the command uses."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sartor.errors import UsageError
from sartor.workspace import partial_file

_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)

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
        other = next((taken[each] for each in identities if each in taken), None)
        if other is not None:
            raise UsageError(f"{option} '{path}' would overwrite {other}; name another file")
        check_writable(path)
        taken |= dict.fromkeys(identities, f"what {option} writes")


def _identities(path: Path) -> tuple[_Identity, ...]:
    real = os.path.realpath(path)
    try:
        found = os.stat(real)
    except OSError:
        return (real,)
    return real, (found.st_dev, found.st_ino)


def _replaced(path: Path) -> Path:
    """The file that is replaced when ``path`` is written. Links are followed, so that they stay links.

    Raises:
        UsageError: if what is there is no regular file.
        OSError: if it cannot be looked at.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return Path(os.path.realpath(path))
    if not stat.S_ISREG(mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "no regular file")
        raise UsageError(f"'{path}' is {kind} and was left as it is; name a file for the output")
    return Path(os.path.realpath(path))


def publish(source: Path, target: Path) -> None:
    """Copy a finished file to where the user wants it, all of it or nothing.

    Raises:
        UsageError: if it cannot be written; what was there before is still there.
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
    """Give files their names in this order, all of them or none.

    Raises:
        UsageError: if that is not possible; what was there before is still there.
    """
    *earlier, last = copies
    with ExitStack() as stack:
        for each in earlier:
            stack.enter_context(_published(each))
        last.publish()


@contextmanager
def _published(copy: StagedFile) -> Iterator[None]:
    """A published file; if the block fails, what was there before is put back, by a second name for it."""
    with _writing(copy.target):
        target = _replaced(copy.target)
        with _beside(target) as old:
            old.unlink()
            is_new = not target.exists()
            # Without hard links it cannot be kept.
            with suppress(OSError):
                os.link(target, old)
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
def staged(source: Path, target: Path) -> Iterator[StagedFile]:
    """A copy of a file beside ``target``, which is gone at the end if it was not published.

    What is checked on the copy holds for the file that the user gets: publishing only renames it.

    Raises:
        UsageError: if it cannot be written.
    """
    with ExitStack() as stack:
        with _writing(target):
            path = stack.enter_context(_beside(target))
            _copy(source, path)
            _open_to_others(path)
        yield StagedFile(path, target)


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
    """
    with _writing(target), _beside(target) as path:
        yield path
        _open_to_others(path)
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
        raise UsageError(f"'{target}' cannot be written: {error.strerror or error}") from None


def _open_to_others(path: Path) -> None:
    """Give a file the default permissions of a new file, 0o666 without the bits of the umask."""
    os.chmod(path, 0o666 & ~_umask())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
