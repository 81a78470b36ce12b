"""Taking turns with other compilations, and noticing who else computes."""

from __future__ import annotations

import logging
import math
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sartor.tuning.workers import sharing
from sartor.tuning.workers.pool import WorkerPool
from sartor.tuning.workers.sharing import Load, Turns, Watch

_HOLD = (
    "import math, sys; from pathlib import Path; from sartor.tuning.workers.sharing import Turns\n"
    "with Turns(Path(sys.argv[1])).turn(alone=sys.argv[2] == 'alone', deadline=math.inf):\n"
    " print(flush=True); sys.stdin.read()\n"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "turns.lock"


@contextmanager
def other(path: Path, how: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that has its turn."""
    command = [sys.executable, "-c", _HOLD, str(path), how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "\n"
        yield process
        process.kill()


def seconds(turns: Turns, *, alone: bool, deadline: float = 0.3) -> float:
    """How long a turn is waited for, at most until the deadline."""
    begin = time.monotonic()
    with turns.turn(alone=alone, deadline=begin + deadline):
        return time.monotonic() - begin


@pytest.mark.parametrize(
    ("how", "alone", "waits"),
    [("alone", True, True), ("alone", False, True), ("beside", True, True), ("beside", False, False)],
)
def test_who_measures_is_alone(
    path: Path, how: str, alone: bool, waits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with other(path, how):
        assert (seconds(Turns(path), alone=alone) >= 0.3) == waits
    messages = [record.getMessage() for record in caplog.records]
    assert ["they take turns" in message for message in messages] == ([True, False] if waits else [])
    assert all("may be too slow" in message for message in messages[1:])


def test_a_turn_ends_with_its_process_however_that_ends(path: Path) -> None:
    with other(path, "alone") as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert seconds(Turns(path), alone=True, deadline=30.0) < 30.0


def test_the_turn_comes_when_the_other_ends(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with other(path, "alone") as process:
        assert process.stdin is not None
        process.stdin.close()
        assert seconds(Turns(path), alone=True, deadline=30.0) < 30.0
    assert not any("may be too slow" in record.getMessage() for record in caplog.records)


def test_one_wait_in_vain_is_enough(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sharing, "_PATIENCE", 0.5)
    turns = Turns(path)
    with other(path, "alone"):
        waits = [seconds(turns, alone=alone, deadline=30.0) for alone in (True, True, False)]
    assert [wait >= 0.5 for wait in waits] == [True, False, False]
    assert ["may be too slow" in record.getMessage() for record in caplog.records] == [False, True]


def test_a_deadline_in_vain_does_not_end_the_patience(path: Path) -> None:
    turns = Turns(path)
    with other(path, "alone"):
        assert all(seconds(turns, alone=True, deadline=0.2) >= 0.2 for _ in range(2))


def test_nothing_is_waited_for_after_the_end_of_a_time_budget(path: Path) -> None:
    turns = Turns(path)
    with other(path, "alone"):
        with turns.awaited_until(time.monotonic() + 0.3):
            assert seconds(turns, alone=True, deadline=30.0) < 30.0
            assert seconds(turns, alone=False, deadline=30.0) < 30.0
        assert seconds(turns, alone=True, deadline=0.4) >= 0.4


def test_turns_within_a_turn_are_part_of_it(path: Path) -> None:
    turns = Turns(path)
    with turns.turn(alone=True, deadline=math.inf), turns.turn(alone=False, deadline=math.inf):
        assert seconds(turns, alone=True, deadline=30.0) < 1.0
    with other(path, "alone"):
        pass


def test_without_a_place_for_the_file_there_are_no_turns(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert seconds(Turns(tmp_path / "file" / "turns.lock"), alone=True) < 0.3


def test_a_pool_takes_turns(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with WorkerPool(1, turns=Turns(path)) as pool, other(path, "alone"):
        begin = time.monotonic()
        assert list(pool.map_unordered("math:sqrt", [], 1.0, quiet=True, deadline=begin + 0.3)) == []
        assert time.monotonic() - begin >= 0.3
    assert "they take turns" in caplog.records[0].getMessage()


@pytest.mark.parametrize(
    ("busy", "own", "stolen", "others"),
    [
        (20.0, 12.0, 0.0, 0.8),
        (20.0, 18.0, 0.0, 0.0),
        (15.0, 5.0, 0.0, 0.0),
        (20.0, 0.0, 0.0, 2.0),
        (10.0, 5.0, 5.0, 0.5),
        (10.0, 9.5, 0.5, 0.0),
    ],
    ids=["crowded", "alone", "room for all", "idle", "half of the core in use is stolen", "little is stolen"],
)
def test_others_count_where_they_leave_too_little(busy: float, own: float, stolen: float, others: float) -> None:
    """In ten seconds of two processors."""
    before, after = Load(5.0, 100.0, 50.0, 2, 7.0), Load(15.0, 100.0 + busy, 50.0 + own, 2, 7.0 + stolen)
    assert after.others_since(before) == pytest.approx(others)
    assert Load(5.5, 200.0, 50.0, 2).others_since(before) == 0.0, "too short to say anything"


def test_what_others_took_is_told_per_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """A measurement of half a second is told of the last second; without processor times nothing is told."""
    busy = {0.0: 0.0, 2.0: 4.0, 2.5: 5.0, 4.5: 7.0, 5.0: 7.5}
    loads = iter([Load(moment, seconds, moment, 2) for moment, seconds in busy.items()])
    monkeypatch.setattr(Load, "now", lambda _: next(loads, None))
    watch = Watch(True)
    assert [round(watch.others([]), 2) for _ in range(6)] == [0.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    assert Watch(False).others([]) == 0.0


def test_the_load_is_read_from_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 100 100 5000 5000 100 100 100 0 0\ncpu7 1 1 1 1 1 1 1 1\n")
    monkeypatch.setattr(sharing, "_STAT", stat)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    monkeypatch.setattr("os.sysconf", lambda _: 100)
    load = Load.now([])
    assert load is not None
    assert (load.busy, load.processors, load.stolen) == (6.0, 1, 1.0), "time that a hypervisor took away counts"
    monkeypatch.setattr(sharing, "_STAT", tmp_path / "absent")
    assert Load.now([]) is None


def test_a_pool_says_once_that_others_compute(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with WorkerPool(1, turns=Turns(path)) as pool:
        for others in (0.0, 1.25, 1.5, 0.5):
            pool._note(others, 2)
        assert pool.others == 1.5
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "other programs took 1.2 of 2 processors" in record.getMessage()
