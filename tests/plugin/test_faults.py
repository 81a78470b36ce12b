"""Compilations that are disturbed: what they leave behind, and what the next one makes of it."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from sartor.runtime.manifest import read_manifest
from sartor.tuning.records.measurement import MeasurementKey, Status
from sartor.tuning.store.store import Store
from tests.importing import ModelFile
from tests.plugin.calling import program

MODEL = "residual"
# A few variants are enough to disturb.
PIN = "*=*/conv2d.direct{*unroll=1*"
# How long a command takes to tell that a worker is gone.
_TOLD_SECONDS = 1.0
# After that it is noticed what a signal did: that a worker is stopped is looked for every few seconds.
_HEARD_SECONDS = {signal.SIGKILL: 5.0, signal.SIGSTOP: 20.0}


@dataclass(frozen=True)
class Bench:
    """A place for one compilation: its model, temporary folder, database and output."""

    model: Path
    root: Path

    @property
    def temporary(self) -> Path:
        return self.root / "tmp"

    @property
    def output(self) -> Path:
        return self.root / "out" / "model.vmfb"

    @property
    def database(self) -> Path:
        return self.root / "t.db"

    @property
    def command(self) -> list[str]:
        files = ["-o", self.output, "--tuning-db", self.database]
        return program("compile-to-vmfb", self.model, *files, "--threads", 1, "--search", "full", "--pin", PIN)

    def start(self, *through: str, first: str = "") -> subprocess.Popen[str]:
        """Compile, by the command or through another, with code that runs ``first``."""
        environment = {**os.environ, "TMPDIR": str(self.temporary)}
        python, option, code, *arguments = self.command
        command = [*through, python, option, first + code, *arguments]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)

    def compile(self) -> str:
        """Compile undisturbed; what was said."""
        with self.start() as process:
            _, said = process.communicate(timeout=300)
        assert process.returncode == 0, said
        return said

    def verdicts(self) -> dict[tuple[str, str], Status]:
        """What the database says of every variant of every layer: what plans are selected from, times aside."""
        with Store.open(self.database) as store:
            found = {measurement.key: measurement.status for measurement in store.measurements()}
        return {(key.task, key.variant): status for key, status in found.items() if not _follows_from_times(key)}

    def left(self) -> list[Path]:
        """What is there that should not be."""
        parts = self.output.parent.glob(".sartor*")
        return [*self.temporary.iterdir(), *parts]


def _follows_from_times(key: MeasurementKey) -> bool:
    """Whether it depends on times what is measured: whole networks, and conversions on their edges."""
    return key.task.startswith("net:") or "/adapt." in key.variant


def made_bench(model: Path, root: Path) -> Bench:
    bench = Bench(model, root)
    bench.temporary.mkdir()
    bench.output.parent.mkdir()
    return bench


@pytest.fixture
def bench(model_file: ModelFile, tmp_path: Path) -> Bench:
    return made_bench(model_file(MODEL), tmp_path)


@pytest.fixture(scope="module")
def undisturbed(model_file: ModelFile, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A compilation that nothing happened to."""
    bench = made_bench(model_file(MODEL), tmp_path_factory.mktemp("undisturbed"))
    bench.compile()
    assert bench.left() == []
    assert Status.OK in bench.verdicts().values()
    return bench


def until(process: subprocess.Popen[str], step: str) -> None:
    """Wait until the command says that it does something."""
    assert process.stderr is not None
    said = ""
    while not said.startswith(step):
        said = process.stderr.readline()
        assert said, "the command ended before it came that far"


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """The processes that a process has started and that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                state, parent = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if int(parent) == process.pid and state != "Z":
                found.append(int(entry.name))
    return found


def disturb_job(process: subprocess.Popen[str], sent: signal.Signals) -> int | None:
    """Send a signal to a worker that computes, in a job: only jobs load IREE; returns the worker, if there was one."""
    while process.poll() is None:
        before = {pid: computed(pid) for pid in workers_of(process) if has_loaded_iree(pid)}
        time.sleep(0.05)
        for pid, ticks in before.items():
            if computed(pid) > ticks + 1:
                os.kill(pid, sent)
                return pid
    return None


def computed(pid: int) -> int:
    """Ticks of processor time so far, 0 if there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def has_loaded_iree(pid: int) -> bool:
    try:
        return "/iree/" in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


@contextmanager
def listening(process: subprocess.Popen[str]) -> Iterator[list[str]]:
    """The lines that a process says from now on, complete when it has ended."""
    lines: list[str] = []
    assert process.stderr is not None
    thread = threading.Thread(target=lines.extend, args=(process.stderr,), daemon=True)
    thread.start()
    yield lines
    thread.join()


def is_tried_again(lines: list[str]) -> bool:
    return any("what it did is tried again" in line for line in lines)


def until_heard(process: subprocess.Popen[str], lines: list[str], worker: int | None, seconds: float) -> None:
    """Wait until the command says that it tries something again, for so long at most.

    A worker that is gone had ended before the signal, unless that is said soon.
    """
    deadline = time.monotonic() + seconds
    while not is_tried_again(lines) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
        if worker is not None and not is_alive(worker):
            deadline, worker = min(deadline, time.monotonic() + _TOLD_SECONDS), None


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 5
    while any(map(is_alive, pids)):
        assert time.monotonic() < deadline, "workers outlive the command"
        time.sleep(0.02)


# Signals within a second count as one, and a fast machine publishes the plan that is there in less: signals are told
# apart, and it waits for the second one before it publishes.
_NO_SIGNAL_TWICE = "import sartor.cli.output.signals as signals; signals._SAME_SIGNAL_SECONDS = 0.0; "
_WAITS_BEFORE_PUBLISHING = (
    "import sys, time; import sartor.pipeline as pipeline; publish = pipeline.publish_best; "
    "pipeline.publish_best = lambda *each: (print('waiting', file=sys.stderr), time.sleep(60), publish(*each))[2]; "
)
# As ``nohup`` does.
_WITHOUT_HANGUPS = ("sh", "-c", 'trap "" HUP; exec "$@"', "sh")


@pytest.mark.parametrize(
    ("sent", "code", "through"),
    [(signal.SIGINT, 130, ()), (signal.SIGTERM, 143, _WITHOUT_HANGUPS), (signal.SIGHUP, 129, ())],
    ids=["2-130", "15-143", "1-129"],
)
def test_who_is_asked_to_end_leaves_nothing(
    bench: Bench, sent: signal.Signals, code: int, through: tuple[str, ...]
) -> None:
    """And what the caller wants ignored is ignored."""
    with bench.start(*through, first=_NO_SIGNAL_TWICE + _WAITS_BEFORE_PUBLISHING) as process:
        until(process, "compiling")
        if through:
            process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        assert process.poll() is None
        workers = workers_of(process)
        assert workers
        assert list(bench.temporary.iterdir())
        process.send_signal(sent)
        if sent is signal.SIGINT:
            # The first one ends tuning early.
            until(process, "stopping")
            until(process, "waiting")
            process.send_signal(sent)
        _, said = process.communicate(timeout=20)
    assert process.returncode == code
    assert said.splitlines()[-1] == "interrupted; what was measured is kept"
    assert "Traceback" not in said
    until_gone(workers)
    assert bench.left() == []
    assert not bench.output.exists()


def test_ctrl_c_ships_what_there_is(bench: Bench) -> None:
    with bench.start() as process:
        until(process, "compiling")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=200)
    assert process.returncode == 0, said
    assert "stopping: the best plan so far is built" in said
    assert bench.left() == []
    assert read_manifest(bench.output).plan["target"] == "cpu:host"


def test_who_is_asked_twice_at_once_still_cleans_up(bench: Bench) -> None:
    """Terminals, and programs that pass signals on, may say the same thing twice."""
    with bench.start() as process:
        until(process, "compiling")
        for _ in range(3):
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
    assert process.returncode == 143
    assert bench.left() == []


def test_what_a_killed_compilation_left_is_removed_by_the_next(bench: Bench, undisturbed: Bench) -> None:
    with bench.start() as process:
        until(process, "compiling")
        time.sleep(0.5)
        workers = workers_of(process)
        process.kill()
    until_gone(workers)
    assert bench.left(), "nothing can be removed before there is a process that does it"
    bench.compile()
    assert bench.left() == []
    assert bench.output.exists()
    assert bench.verdicts() == undisturbed.verdicts()


@pytest.mark.parametrize(
    ("sent", "step"), [(signal.SIGKILL, "compiling ("), (signal.SIGSTOP, "measuring")], ids=["killed", "stopped"]
)
def test_disturbed_workers_disturb_no_verdict(
    bench: Bench, undisturbed: Bench, sent: signal.Signals, step: str
) -> None:
    with bench.start() as process:
        until(process, step)
        with listening(process) as lines:
            while not is_tried_again(lines) and process.poll() is None:
                # A job may end between the look and the signal, so that nothing has to be tried again.
                worker = disturb_job(process, sent)
                until_heard(process, lines, worker, _HEARD_SECONDS[sent])
            process.wait(timeout=300)
    said = "".join(lines)
    assert process.returncode == 0, said
    assert is_tried_again(lines), said
    assert bench.left() == []
    assert bench.verdicts() == undisturbed.verdicts()


# Too little for the import, and for what variants are compiled to.
@pytest.mark.parametrize("kibibytes", [24, 160])
def test_a_full_temporary_folder_is_said_and_leaves_no_verdict(
    bench: Bench, undisturbed: Bench, kibibytes: int
) -> None:
    script = 'mount -t tmpfs -o size="$1"k none "$TMPDIR" || exit 77; shift; "$@"; code=$?; ls -A "$TMPDIR"; exit $code'
    result = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", str(kibibytes), *bench.command],
        env={**os.environ, "TMPDIR": str(bench.temporary)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    if result.returncode == 77 or "unshare failed" in result.stderr:
        pytest.skip(f"file systems cannot be mounted here: {result.stderr.strip()}")
    assert result.returncode == 7, result.stderr
    assert "No space left on device" in result.stderr or "no room" in result.stderr
    assert str(bench.temporary) in result.stderr
    assert "set TMPDIR to a folder elsewhere" in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == "", "something is left in the temporary folder"
    assert not bench.output.exists()
    bench.compile()
    assert bench.left() == []
    assert bench.verdicts() == undisturbed.verdicts()


def test_two_compilations_share_a_database(bench: Bench, undisturbed: Bench) -> None:
    with bench.start() as first, bench.start() as second:
        said = [each.communicate(timeout=300)[1] for each in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), said
    assert any("they take turns" in each for each in said)
    assert bench.left() == []
    assert bench.verdicts() == undisturbed.verdicts()
