"""A farm with machines that are not there: which are used, how their times count, and what happens without any."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sartor.errors import CompileError, DisturbedError, SartorError
from sartor.tuning.cluster.farm import Farm, Order, Yardstick
from sartor.tuning.cluster.link import Done
from sartor.tuning.cluster.machine import Machine
from sartor.tuning.cluster.parcel import Answer, Packed, Parcel
from sartor.tuning.workers.pool import JobResult, JobStatus
from tests.tuning.cluster.machines import machine
from tests.tuning.cluster.processes import wait_until

Told = queue.SimpleQueue[tuple[str, JobResult | SartorError]]
DONE = JobResult("", JobStatus.OK, None, "", 0.1)


class Planned:
    """Machines that answer at once, each with the seconds that a job takes on it, unless they are silent."""

    def __init__(self, **paces: float) -> None:
        self.there: Mapping[str, Machine] | None = {name: machine(name) for name in paces}
        self.paces = paces
        self.started: list[tuple[str, str]] = []
        self.parcels: list[Parcel] = []
        self.silent: set[str] = set()
        self.forgetful: set[str] = set()

    def machines(self) -> Mapping[str, Machine] | None:
        return self.there

    def start(self, worker: str, parcel: Parcel, measures: bool, done: Done) -> None:
        self.started.append((worker, parcel.function))
        self.parcels.append(parcel)
        if worker in self.silent:
            return
        missing = tuple(parcel.arguments.names) if worker in self.forgetful else ()
        self.forgetful.discard(worker)
        done(Answer(replace(DONE, seconds=self.paces[worker]), Packed(b""), missing), "")

    def close(self) -> None:
        self.there = {}


@contextmanager
def farm(link: Planned, patience: float = 60.0) -> Iterator[Farm]:
    made = Farm(link, lambda _: True, lambda each: bool(each.compilers), patience)
    try:
        yield made
    finally:
        made.close()


def order(name: str, told: Told, **changes: object) -> Order:
    made = Order(name, "job", {}, 1.0, lambda name, result, _: told.put((name, result)))
    return replace(made, **changes)  # type: ignore[arg-type]


def yardstick(name: str) -> Yardstick:
    return Yardstick(order(name, queue.SimpleQueue(), function=name), lambda answer: answer.result.seconds)


def done_by(link: Planned, made: Farm, count: int, told: Told) -> dict[str, JobResult]:
    for number in range(count):
        made.add(order(str(number), told))
    found = dict(told.get(timeout=30.0) for _ in range(count))
    return {name: each for name, each in found.items() if isinstance(each, JobResult)}


def test_only_the_first_machine_works_until_others_are_compared_with_it() -> None:
    link, told = Planned(first=0.1, other=0.11), Told()
    with farm(link) as made:
        done_by(link, made, 4, told)
        assert {worker for worker, _ in link.started} == {"first"}
        made.measure_likeness([yardstick("a"), yardstick("b")])
        wait_until(lambda: len(link.started) == 8)
        found = done_by(link, made, 6, told)
    assert link.started[4:8].count(("other", "a")) == 1
    assert {worker for worker, _ in link.started[8:]} == {"first", "other"}
    assert {round(each.slowness, 6) for each in found.values()} == {1.0, 1.1}


def test_workers_on_one_machine_are_not_compared_with_each_other(caplog: pytest.LogCaptureFixture) -> None:
    link, told = Planned(first=0.1, busy=0.4, far=0.11), Told()
    link.there = {name: machine(name, host="far" if name == "far" else "here") for name in link.paces}
    with farm(link) as made:
        made.measure_likeness([yardstick("a")])
        wait_until(lambda: len(link.started) == 2)
        done_by(link, made, 4, told)
        link.there = {"busy": link.there["busy"]}
        wait_until(lambda: bool(done_by(link, made, 1, told)) and link.started[-1][0] == "busy")
        found = done_by(link, made, 2, told)
    assert {worker for worker, function in link.started if function == "a"} == {"first", "far"}
    assert {round(each.slowness, 6) for each in found.values()} == {1.0}
    assert "not of one kind" not in caplog.text


def test_a_machine_of_another_speed_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    link, told = Planned(first=0.1, slow=0.3), Told()
    with farm(link) as made:
        made.measure_likeness([yardstick("a")])
        wait_until(lambda: len(link.started) == 2)
        done_by(link, made, 6, told)
    assert {worker for worker, function in link.started if function == "job"} == {"first"}
    assert "not of one kind" in caplog.text


def test_what_a_lost_machine_did_is_done_by_another() -> None:
    link, told = Planned(first=0.1), Told()
    link.silent.add("first")
    with farm(link) as made:
        made.add(order("a", told))
        wait_until(lambda: bool(link.started))
        link.paces, link.there = {"next": 0.1}, {"next": machine("next")}
        name, result = told.get(timeout=30.0)
    assert (name, isinstance(result, JobResult)) == ("a", True)
    assert link.started == [("first", "job"), ("next", "job")]


def test_files_that_a_worker_has_lost_travel_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("file") / "module.vmfb"
    file.write_bytes(b"code")
    link, told = Planned(first=0.1), Told()
    with farm(link) as made:
        for name in ("a", "b"):
            made.add(order(name, told, arguments={"module": file}))
            told.get(timeout=30.0)
        link.forgetful.add("first")
        made.add(order("c", told, arguments={"module": file}))
        told.get(timeout=30.0)
    assert [bool(parcel.arguments.contents) for parcel in link.parcels] == [True, False, False, True]


def test_without_a_machine_jobs_end_with_one_sentence() -> None:
    link, told = Planned(), Told()
    with farm(link, patience=0.5) as made:
        made.add(order("a", told))
        _, error = told.get(timeout=30.0)
    assert isinstance(error, DisturbedError)
    assert "start one" in str(error)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_after_a_mistake_of_the_thread_jobs_end_and_later_ones_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    link, told = Planned(), Told()
    is_looking, may_fail = threading.Event(), threading.Event()

    def fail() -> Mapping[str, Machine]:
        is_looking.set()
        may_fail.wait(30.0)
        raise LookupError

    monkeypatch.setattr(link, "machines", fail)
    with farm(link) as made:
        is_looking.wait(30.0)
        made.add(order("queued", told))
        may_fail.set()
        name, error = told.get(timeout=30.0)
        assert (name, str(error)) == ("queued", "the thread that follows the workers has ended")
        with pytest.raises(CompileError, match="has ended"):
            made.add(order("later", told))


def test_a_dropped_job_is_not_told_of() -> None:
    link, told = Planned(first=0.1), Told()
    link.there = {}
    with farm(link) as made:
        made.add(order("a", told))
        made.withdraw("a")
        link.there = {"first": machine("first")}
        made.add(order("b", told))
        assert told.get(timeout=30.0)[0] == "b"
    assert told.empty()


def test_yardsticks_reach_machines_that_come_after_their_files_are_gone(tmp_path: Path) -> None:
    file = tmp_path / "module.vmfb"
    file.write_bytes(b"code")
    link = Planned(first=0.1, late=0.1)
    late = link.there
    link.there = {"first": machine("first")}
    with farm(link) as made:
        asked = yardstick("a")
        made.measure_likeness([replace(asked, order=replace(asked.order, arguments={"module": file}))])
        file.unlink()
        link.there = late
        wait_until(lambda: len(link.started) == 2)
    assert {worker for worker, _ in link.started} == {"first", "late"}
    assert all(parcel.arguments.contents for parcel in link.parcels)


def test_a_job_whose_files_are_gone_ends_alone(tmp_path: Path) -> None:
    file = tmp_path / "module.vmfb"
    file.write_bytes(b"code")
    link, told = Planned(first=0.1), Told()
    kept, link.there = link.there, {}
    with farm(link) as made:
        made.add(order("a", told, arguments={"module": file}))
        file.unlink()
        link.there = kept
        _, error = told.get(timeout=30.0)
        made.add(order("b", told))
        assert told.get(timeout=30.0)[0] == "b"
    assert isinstance(error, SartorError)
