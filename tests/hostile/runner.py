"""Runs readers on damaged files, in processes with limits, and collects findings.

A finding is an error other than SartorError, a crash or hang of the process, excessive use of memory, access to a file
outside the input's folder, or a file left behind.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random

from sartor.errors import SartorError
from sartor.tuning.workers.disturbances import computed_seconds
from tests.hostile.subjects import SUBJECTS, Subject

SECRET = b"a secret of 28 bytes, not read"
MEMORY = 2 << 30
"""Limit of memory for reading one file, in bytes."""

SECONDS = 30.0
"""Limit of the processor time for reading one file, in seconds."""

_START_SECONDS = 300.0
_LOOK_SECONDS = 1.0
_WAITING = 10
_TAIL = 3000
_FORBIDDEN = ("secret.bin", "passwd", "zero", "mem")


@dataclass(frozen=True)
class Outcome:
    """The result of reading one input.

    Attributes:
        number: number of the input, which with the seed determines its content.
        subject: index in ``SUBJECTS``.
        finding: description of the finding; empty if there is none.
        refused: name of the reader's error; empty if it accepted the file.
        seconds: duration of reading in seconds.
    """

    number: int
    subject: int
    finding: str = ""
    refused: str = ""
    seconds: float = 0.0


@dataclass
class Report:
    """Counts of all outcomes, and the findings."""

    findings: list[Outcome] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    memory: int = 0

    def add(self, outcome: Outcome) -> None:
        """Add an outcome."""
        self.slowest = max(self.slowest, outcome.seconds)
        ended = "FOUND" if outcome.finding else outcome.refused or "taken"
        self.counts[f"{label(SUBJECTS[outcome.subject])}: {ended}"] += 1
        if outcome.finding:
            self.findings.append(outcome)


def label(subject: Subject) -> str:
    """Return a subject's name for reports."""
    return f"{subject.kind} by {subject.read.__name__.removeprefix('_')}"


def damaged(seed: int, number: int, corpus: Path) -> tuple[int, bytes]:
    """Return the index of an input's subject, and the input's content."""
    random = Random(f"{seed}/{number}")
    index = random.choices(range(len(SUBJECTS)), [each.share for each in SUBJECTS])[0]
    subject = SUBJECTS[index]
    files = sorted(path for path in (corpus / subject.kind).iterdir() if path.suffix == subject.suffix)
    return index, subject.damage(random.choice(files).read_bytes(), random)


def run(seed: int, numbers: Sequence[int], corpus: Path, folder: Path) -> Iterator[Outcome]:
    """Read the inputs of the given numbers in a child process, restart it if it ends or hangs, and yield outcomes."""
    context = multiprocessing.get_context("spawn")
    pending = list(numbers)
    while pending:
        own, remote = context.Pipe()
        process = context.Process(target=_serve, args=(remote, seed, pending, corpus, folder), daemon=True)
        process.start()
        remote.close()
        limit = _START_SECONDS
        try:
            while pending and _answers(own, process, limit):
                outcome: Outcome | None = own.recv()
                limit = SECONDS
                if outcome is not None:
                    pending.remove(outcome.number)
                    yield outcome
            ending = "" if not pending else f"still running after {limit:g} s{_killed(process, folder)}"
        except EOFError:
            process.join(SECONDS)
            ending = f"the process ended with {process.exitcode}{_printed(folder)}"
        process.kill()
        process.join()
        if pending:
            number = pending.pop(0)
            index, _ = damaged(seed, number, corpus)
            yield Outcome(number, index, ending)


def _answers(connection: Connection, process: BaseProcess, seconds: float) -> bool:
    """Whether a process says something before it has computed for so long, or waited for many times as long.

    Other programs may take its processor meanwhile.
    """
    pid, begin = process.pid or 0, time.monotonic()
    before = computed_seconds(pid)
    while not connection.poll(_LOOK_SECONDS):
        if computed_seconds(pid) - before > seconds or time.monotonic() - begin > _WAITING * seconds:
            return False
    return True


def _killed(process: BaseProcess, folder: Path) -> str:
    """End a process by SIGABRT, and return the stack that it prints."""
    if process.pid is not None:
        os.kill(process.pid, signal.SIGABRT)
        process.join(SECONDS)
    return _printed(folder)


def _printed(folder: Path) -> str:
    return "\n" + (folder / "output.txt").read_text(encoding="utf-8", errors="replace")[-_TAIL:]


def _serve(connection: Connection, seed: int, numbers: Sequence[int], corpus: Path, folder: Path) -> None:
    """Child process: read the inputs in order and send their outcomes."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    os.environ["TMPDIR"] = str(folder / "tmp")
    for name in ("cache", "tmp"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    watch = _Watch()
    with open(folder / "output.txt", "w", encoding="utf-8") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    connection.send(None)
    limited = False
    for number in numbers:
        with watch:
            outcome = _one(seed, number, corpus, folder, watch)
        if not limited:
            # Set the limit after the first input, because readers load their libraries then.
            limit = _data_bytes() + MEMORY
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
            limited = True
        connection.send(outcome)


def _data_bytes() -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    return 0


class _Watch:
    """Context that records which forbidden files Python opens. Its audit hook stays, as hooks are not removable."""

    def __init__(self) -> None:
        self.escapes: list[str] = []
        self._active = False
        sys.addaudithook(self._see)

    def __enter__(self) -> None:
        self._active = True

    def __exit__(self, *_: object) -> None:
        self._active = False

    def _see(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self._active or event != "open" or not isinstance(arguments[0], (str, bytes)):
            return
        path = os.fsdecode(arguments[0])
        if os.path.basename(path) in _FORBIDDEN or os.path.basename(os.path.realpath(path)) in _FORBIDDEN:
            self.escapes.append(path)


def _one(seed: int, number: int, corpus: Path, folder: Path, watch: _Watch) -> Outcome:
    index, content = damaged(seed, number, corpus)
    subject, place = SUBJECTS[index], folder / "case"
    path = _laid_out(place, subject, content)
    before = _listing(folder)
    watch.escapes.clear()
    begin = time.monotonic()
    refused = finding = ""
    try:
        subject.read(path, corpus)
    except SartorError as error:
        refused = type(error).__name__
        str(error).encode("utf-8", "backslashreplace")
    except Exception:  # noqa: BLE001 every other error is a finding
        finding = traceback.format_exc()
    seconds = time.monotonic() - begin
    if watch.escapes:
        finding += f"\nopened {watch.escapes}"
    if left := _listing(folder) - before:
        finding += f"\nleft {sorted(left)[:5]}"
    shutil.rmtree(place)
    return Outcome(number, index, finding, refused, seconds)


def _laid_out(place: Path, subject: Subject, content: bytes) -> Path:
    """Write an input to a new folder with files and links that it must not reach, and return its path."""
    inside = place / "inside"
    # A process that crashed leaves its folder.
    shutil.rmtree(place, ignore_errors=True)
    (inside / "sub").mkdir(parents=True)
    secret = place / "secret.bin"
    secret.write_bytes(SECRET)
    (inside / "inside.bin").write_bytes(bytes(64))
    (inside / "link.bin").symlink_to(secret)
    (inside / "folder-link").symlink_to(place)
    os.link(secret, inside / "hard.bin")
    os.mkfifo(inside / "pipe")
    path = inside / f"input{subject.suffix}"
    path.write_bytes(content)
    return path


def _listing(folder: Path) -> set[str]:
    return {os.path.join(root, name) for root, _, names in os.walk(folder) for name in names}
