"""Who does what: jobs are placed once, again when they are lost, twice when they straggle; kinds are never mixed."""

from __future__ import annotations

import logging
import random

import pytest

from sartor.codegen.ir.target import Target
from sartor.errors import DeviceError, UsageError
from sartor.tuning.cluster.dispatcher import Attempt, Dispatcher, Job
from sartor.tuning.cluster.likeness import Likeness
from sartor.tuning.cluster.link import Scheduler
from sartor.tuning.cluster.machine import MEASURE, Machine, this_machine
from sartor.tuning.cluster.party import find_party
from tests.tuning.cluster.machines import BOARD, LAPTOP, machine

TWO = {"a": "host 1", "b": "host 2"}


def jobs(count: int) -> list[Job]:
    return [Job(str(number)) for number in range(count)]


def dispatcher(count: int) -> Dispatcher:
    made = Dispatcher()
    for job in jobs(count):
        made.add(job)
    return made


def placed(attempts: list[Attempt]) -> dict[str, str]:
    return {attempt.machine: attempt.job.name for attempt in attempts}


def test_each_machine_does_one_job_at_a_time() -> None:
    made = dispatcher(3)
    first = made.place(TWO, 0.0)
    assert placed(first) == {"a": "0", "b": "1"}
    assert made.place(TWO, 1.0) == []
    assert made.ended(first[1], 1.0)
    assert placed(made.place(TWO, 1.0)) == {"b": "2"}


def test_workers_on_one_host_measure_in_turn() -> None:
    made = dispatcher(2)
    assert len(made.place({"a": "host", "b": "host"}, 0.0)) == 1


def test_the_job_of_a_lost_machine_is_done_by_another() -> None:
    made = dispatcher(2)
    first, second = made.place(TWO, 0.0)
    (gone,) = made.lost_with({"b"})
    assert gone == first
    assert not made.lost(gone)
    made.ended(second, 1.0)
    (again,) = made.place({"b": "host 2"}, 1.0)
    assert again.job == first.job
    assert made.ended(again, 2.0)
    assert made.is_idle


def test_a_job_that_loses_machine_after_machine_is_given_up() -> None:
    made = dispatcher(1)
    for number in range(3):
        (attempt,) = made.place({f"m{number}": "host"}, 0.0)
        assert not made.lost(attempt)
    (attempt,) = made.place({"m9": "host"}, 0.0)
    assert made.lost(attempt)
    assert made.is_idle


def after_others(made: Dispatcher) -> tuple[Attempt, list[Attempt]]:
    """Let all but the first job take a second each, on the second machine, which is done at second 7.

    Returns the attempt at the first job, and what is placed then.
    """
    slow, current = made.place(TWO, 0.0)
    for now in range(1, 7):
        made.ended(current, float(now))
        (current,) = made.place(TWO, float(now))
    made.ended(current, 7.0)
    return slow, made.place(TWO, 7.0)


def test_a_straggler_is_done_twice_and_the_first_result_counts() -> None:
    made = dispatcher(8)
    slow, (second,) = after_others(made)
    assert (second.job, second.machine) == (slow.job, "b")
    assert made.place(TWO, 99.0) == []
    assert made.ended(second, 21.0)
    assert made.is_idle
    assert not made.ended(slow, 40.0)


def test_what_takes_long_for_its_weight_is_no_straggler() -> None:
    made = Dispatcher()
    for job in [Job("large", weight=100.0), *jobs(7)]:
        made.add(job)
    slow, placed_then = after_others(made)
    assert slow.job.name == "large"
    assert placed_then == []
    assert made.place(TWO, 299.0) == []
    assert placed(made.place(TWO, 301.0)) == {"b": "large"}


def test_losing_one_of_two_attempts_places_no_third() -> None:
    made = dispatcher(8)
    slow, (second,) = after_others(made)
    assert not made.lost(second)
    assert made.ended(slow, 30.0)


def test_a_job_for_one_machine_waits_for_it() -> None:
    made = Dispatcher()
    made.add(Job("home", only="b"))
    assert made.place({"a": "host 1"}, 0.0) == []
    assert made.stranded({"a"}) == [Job("home", only="b")]
    assert placed(made.place(TWO, 0.0)) == {"b": "home"}


def test_a_restricted_machine_gets_only_jobs_for_itself() -> None:
    made = dispatcher(2)
    made.add(Job("yardstick", only="b"))
    assert placed(made.place(TWO, 0.0, restricted={"b"})) == {"a": "0", "b": "yardstick"}


@pytest.mark.parametrize("seed", range(20))
def test_every_job_has_one_result_however_machines_come_and_go(seed: int) -> None:
    drawn = random.Random(seed)
    made, there, running = dispatcher(60), {"m0"}, list[Attempt]()
    counted = list[str]()
    for now in range(2000):
        if drawn.random() < 0.1:
            there.add(f"m{drawn.randrange(6)}")
        if len(there) > 1 and drawn.random() < 0.03:
            there.discard(drawn.choice(sorted(there)))
        for attempt in made.lost_with(there):
            running.remove(attempt)
            assert not made.lost(attempt)
        running += made.place({each: each for each in sorted(there)}, float(now))
        assert len({each.machine for each in running}) == len(running)
        if running and drawn.random() < 0.5:
            attempt = running.pop(drawn.randrange(len(running)))
            if made.ended(attempt, float(now)):
                counted.append(attempt.job.name)
        if made.is_idle:
            break
    assert sorted(counted, key=int) == [str(number) for number in range(60)]


V3, ARM = Target.create("cpu", "x86-64-v3"), Target.create("cpu", "aarch64:cortex-a72")
ONE, PARTY_TWO = machine("1"), machine("2")
SERVER = machine("3", gpus=("cuda:NVIDIA H200",))


def test_a_report_arrives_as_it_was() -> None:
    here = this_machine()
    assert Machine.of_json(here.to_json()) == here
    assert here.resources[MEASURE] == 1
    with pytest.raises(ValueError, match="cannot be read"):
        Machine.of_json("{}")


def test_machines_of_one_kind_work_together_and_others_do_not() -> None:
    party = find_party([ONE, PARTY_TWO], V3, None)
    assert party.measures(ONE)
    assert party.measures(PARTY_TWO)
    assert not party.measures(SERVER)
    assert not party.measures(machine("4", threads=2))
    assert party.hardware == LAPTOP.key


def test_of_several_kinds_one_must_be_named() -> None:
    with pytest.raises(UsageError, match="--tune-for") as caught:
        find_party([ONE, SERVER], V3, None)
    assert ONE.kind in str(caught.value)
    assert SERVER.kind in str(caught.value)
    assert find_party([ONE, SERVER], V3, SERVER.kind[:6]).example is SERVER
    assert find_party([ONE, SERVER], V3, "h200").example is SERVER
    with pytest.raises(DeviceError, match="'pi'"):
        find_party([ONE, SERVER], V3, "pi")


def test_only_machines_that_run_the_target_count() -> None:
    board = machine("5", BOARD)
    assert find_party([ONE, board], ARM, None).example is board
    assert find_party([ONE, SERVER], Target.create("cuda", "sm_90"), None).example is SERVER
    with pytest.raises(DeviceError, match="sartor worker"):
        find_party([ONE], ARM, None)


def test_unlike_gpus_beside_one_processor_are_stored_apart() -> None:
    other = machine("6", gpus=("cuda:NVIDIA A100",))
    assert SERVER.measured_as("cpu") == other.measured_as("cpu")
    assert SERVER.measured_as("cuda") != other.measured_as("cuda")


def test_code_for_this_machine_is_not_measured_on_another() -> None:
    with pytest.raises(UsageError, match="--cpu"):
        find_party([ONE], Target.create("cpu"), None)
    assert find_party([this_machine()], Target.create("cpu"), None).hardware == this_machine().hardware.key


def test_workers_of_another_version_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    old = machine("7", code="sartor 0.0.1")
    with caplog.at_level(logging.WARNING):
        assert find_party([ONE, old], V3, None).example is ONE
    assert "sartor 0.0.1" in caplog.text
    with pytest.raises(DeviceError, match="none of this version"):
        find_party([old], V3, None)


@pytest.mark.parametrize(
    "address", ["nonsense://host:8786", "tcp://", "tcp://host", "tcp://host:port", "inproc://here"]
)
def test_an_address_that_is_none_is_refused_before_any_work(address: str) -> None:
    with pytest.raises(UsageError, match=f"'{address}' is no address of a Dask scheduler.*tcp://host:8786"):
        Scheduler.of(address)


def likeness(**seconds: tuple[float, ...]) -> Likeness:
    made = Likeness("first")
    for name, taken in seconds.items():
        for task, each in enumerate(taken):
            made.put(name, str(task), each)
    return made


def test_a_machine_is_as_slow_as_the_median_of_its_ratios() -> None:
    made = likeness(first=(1e-3, 2e-3, 4e-3), other=(1.1e-3, 2.4e-3, 4.2e-3))
    assert made.slowness("first") == 1.0
    assert made.slowness("other") == pytest.approx(1.1)
    assert not made.is_unlike("other")


def test_nothing_is_known_of_a_machine_that_shares_no_task_with_the_first() -> None:
    made = likeness(first=(1e-3,))
    made.put("other", "another task", 1e-3)
    assert made.slowness("other") is None
    made.assume("other")
    assert made.slowness("other") == 1.0


@pytest.mark.parametrize("seconds", [(2e-3, 4e-3), (0.5e-3, 1e-3), (1e-3, 5e-3)])
def test_a_machine_of_another_speed_or_other_strengths_is_unlike(seconds: tuple[float, ...]) -> None:
    assert likeness(first=(1e-3, 2e-3), other=seconds).is_unlike("other")
