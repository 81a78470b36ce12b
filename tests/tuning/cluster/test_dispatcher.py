"""Jobs are placed once, again when they are lost, and twice when they straggle."""

from __future__ import annotations

import random

import pytest

from sartor.tuning.cluster.dispatcher import Attempt, Dispatcher, Job

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
