"""Numbers of workgroups worth measuring beside the one that a kernel's formula gives.

A formula gives each thread seven workgroups, so that all end together, or two. For a short layer that is too many:
taking a workgroup costs time, and so does handing work to another thread, which may sleep. So a small layer may be
faster on fewer workgroups, or on one core. How much all of this costs depends on the machine and on the layers around,
so a model selects the numbers that may win, and they are measured like any variant (ACLTuner: Kwon et al., 2023,
section 2.2, where the distribution of work is a parameter that is measured, too).

Workers that take workgroups are simulated. Times are relative: the whole layer takes 1 on a core of speed 1.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from fractions import Fraction

from sartor.codegen.analysis.task_bounds import ideal_seconds, kind_and_sizes
from sartor.codegen.analysis.task_facts import task_facts
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.descriptor import SHARES
from sartor.codegen.ir.variants.routine import Parameters, Variant

Shares = Sequence[float | Fraction]
"""The fraction of a layer that each workgroup computes, in the order in which workers take them."""


def equal(count: int) -> list[Fraction]:
    """Equal shares."""
    return [Fraction(1, count)] * count


def shrinking(count: int) -> list[Fraction]:
    """Shares that shrink linearly, as kernels have them (``codegen/kernels/loops/partition.py``)."""
    return [Fraction(2 * (count - index) - 1, count**2) for index in range(count)]


def proportional(speeds: Sequence[float]) -> list[float]:
    """A share for each core in proportion to its speed."""
    return [speed / sum(speeds) for speed in speeds]


def taken_in_turn(shares: Shares, speeds: Sequence[float], claim: float = 0.0) -> float:
    """The time until all workgroups are done, if each worker takes the next one when it has finished one.

    Workers that begin together take workgroups in the order of ``speeds``.

    Args:
        shares: of the workgroups.
        speeds: of the cores.
        claim: time to take a workgroup, on every core.
    """
    free = [(0.0, core) for core in range(len(speeds))]
    end = 0.0
    for share in shares:
        begin, core = heapq.heappop(free)
        done = begin + claim + float(share) / speeds[core]
        heapq.heappush(free, (done, core))
        end = max(end, done)
    return end


def given_to_cores(shares: Shares, speeds: Sequence[float], claim: float = 0.0) -> float:
    """The time until all are done, if each core computes the share of its own position, whatever the others do."""
    return max(claim + float(share) / speed for share, speed in zip(shares, speeds, strict=True))


_ROWS, _PANELS, _OTHERS = "row_groups", "panel_groups", "groups"
WORKGROUP_PARAMETERS = (_ROWS, _PANELS, _OTHERS, SHARES)
"""Names of the parameters that are numbers of workgroups."""

# Seconds in which a worker takes a workgroup and begins to compute it.
_CLAIM = 1e-7
# Seconds until another worker has begun, if it is awake, and if it sleeps: waking it takes 5 to 45 µs, of which this is
# the geometric mean (docs/records/kernels.md). Which of them it is depends on the layers before.
_HAND_OVERS = (1e-6, 1.5e-5)
# A number of workgroups must be predicted to take less than this fraction of the formula's time.
_WORTHWHILE = 0.98


def fewer_workgroups(task: Task, variants: Sequence[Variant], target: Target) -> list[Parameters]:
    """The parameters of a routine's best guess with fewer workgroups, where a model predicts that they may be faster.

    Args:
        task: the layer.
        variants: those of the routine, best guess first.
        target: of the code; none are found for a single thread, or for a GPU.
    """
    if not target.is_cpu or target.threads == 1 or not variants or variants[0].implementation.kernel is None:
        return []
    given = dict(variants[0].parameters)
    usual, facts = workgroups_of(variants[0].described.parameters), task_facts(task)
    batches = kind_and_sizes(facts)[1]["batch"]
    if usual is None or batches > 1:
        return []
    numbers = promising_numbers(usual, ideal_seconds(facts), target.threads)
    given_fewer = [_with_workgroups(given, number) for number in numbers]
    return [parameters for parameters in given_fewer if parameters != given]


def workgroups_of(parameters: Mapping[str, int]) -> int | None:
    """The number of workgroups that parameters name; None if they name none."""
    if _ROWS in parameters:
        return parameters[_ROWS] * parameters.get(_PANELS, 1)
    return parameters.get(_OTHERS)


def promising_numbers(usual: int, seconds: float, threads: int) -> list[int]:
    """Of 1, ``threads`` and twice as many workgroups those that are fastest if workers are awake or asleep.

    Numbers that are hardly faster than the usual one are left out.

    Args:
        usual: number of workgroups that a formula gives.
        seconds: time of the layer on one core.
        threads: number of threads.
    """
    numbers, promising = [number for number in (1, threads, 2 * threads) if number < usual], set[int]()
    for hand_over in _HAND_OVERS if numbers else ():
        times = {number: predicted_seconds(number, seconds, threads, hand_over) for number in numbers}
        best = min(times, key=lambda time: times[time])
        # The formula's shares are small enough to balance threads that are delayed by something else, too.
        balanced = (seconds + usual * _CLAIM) / threads + hand_over
        promising |= {best} if times[best] < _WORTHWHILE * balanced else set()
    return sorted(promising)


def predicted_seconds(workgroups: int, seconds: float, threads: int, hand_over: float) -> float:
    """Time of a layer in so many workgroups on equal cores.

    Args:
        workgroups: their number.
        seconds: time of the layer on one core.
        threads: number of threads.
        hand_over: seconds until another worker has begun.
    """
    busy = seconds * taken_in_turn(shrinking(workgroups), [1.0] * threads, _CLAIM / seconds)
    return busy + (hand_over if workgroups > 1 else 0.0)


def _with_workgroups(parameters: Parameters, wanted: int) -> Parameters:
    """Parameters with at most so many workgroups; those that partition panels are given up first."""
    numbers = {name: value for name, value in parameters.items() if isinstance(value, int)}
    if _ROWS in numbers:
        rows = min(numbers[_ROWS], wanted)
        fewer = {_ROWS: rows}
        if _PANELS in numbers:
            fewer[_PANELS] = min(numbers[_PANELS], wanted // rows)
    else:
        fewer = {_OTHERS: min(numbers[_OTHERS], wanted)}
    return {**parameters, **fewer}
