"""ACLTuner's claim: the quality of the best candidate after measuring a fraction of all candidates.

It is replayed from a table of all candidates (ACLTuner, section 4: within 2% of an exhaustive search with 5% of its
measurements). Candidate 0 of every task is measured first, as it is the baseline of all others.

- random: one more random candidate of every task at a time.
- model: what a cost model predicts to be fastest, one more of every task at a time; it learns from what was measured of
  the network so far. The first candidates are random.
- model, other networks: the same, having learned from the tables of all other networks before.
- tuner: what the tuner itself does, which measures more of the layers that take most; with and without other networks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean

from benchmarks.selection.network_tables import NetworkTables, TaskTimes
from benchmarks.selection.results import Axes, Line, plot_lines
from benchmarks.selection.tuner_search import replay_search
from sartor.codegen.analysis.task_facts import task_facts
from sartor.codegen.routine_registry import described
from sartor.tuning.search.cost_model import CostModel, Sample

RANDOM = "random"
MODEL = "model"
TRANSFER = "model, other networks"
TUNER = "tuner"
TUNER_TRANSFER = "tuner, other networks"
_SEEDS = 3
_FEWEST_CANDIDATES = 3
_ROUNDS = 8

Ranker = Callable[[TaskTimes, Sequence[str]], Sequence[str]]
"""Sorts candidates of a task that are not measured by the order in which to measure them."""
Fit = Callable[[Sequence[Sample], Random], Ranker]
"""Makes a ranker from samples."""


@dataclass(frozen=True)
class Quality:
    """The quality of the measured candidates after a round.

    Attributes:
        network: name.
        method: how candidates were selected.
        measured: number of measured candidates.
        fraction: of all candidates.
        ratio: time of the network's layers with the best measured candidates, divided by that with the best of all; the
            mean over seeds.
        most: the largest ratio of a seed.
    """

    network: str
    method: str
    measured: int
    fraction: float
    ratio: float
    most: float


@dataclass(frozen=True)
class Job:
    """Tasks to search, the number of layers of each, and samples of other networks."""

    network: str
    tasks: tuple[TaskTimes, ...]
    layers: Mapping[str, int]
    others: tuple[Sample, ...]

    def cost(self, measured: Mapping[str, Sequence[str]]) -> float:
        """Seconds of all layers, each with the best measured candidate of its task."""
        return sum(
            self.layers[each.task.key]
            * min(variant.seconds for variant in each.variants if variant.descriptor in measured[each.task.key])
            for each in self.tasks
        )

    def samples(self, measured: Mapping[str, Sequence[str]]) -> list[Sample]:
        """Samples of the measured candidates."""
        return [sample for task in self.tasks for sample in samples_of(task, measured[task.task.key])]


def run(tables: Sequence[NetworkTables], seeds: int = _SEEDS, rounds: int = _ROUNDS) -> list[Quality]:
    """Run all methods on every network's tasks with at least three candidates."""
    rows = []
    for job in jobs(tables):
        rows += replay(job, RANDOM, lambda samples, rng: _shuffled(rng), (), seeds, rounds)
        rows += replay(job, MODEL, learned, (), seeds, rounds)
        rows += replay(job, TRANSFER, learned, job.others, 1, rounds)
        for method, known in ((TUNER, ()), (TUNER_TRANSFER, job.others)):
            rows += _qualities(job, method, [list(replay_search(job.tasks, job.layers, known))])
    return rows


def plot(rows: Sequence[Quality], path: Path) -> Path:
    """Plot the mean over all networks by rounds."""
    lines = []
    for method in dict.fromkeys(row.method for row in rows):
        rounds = _rounds([row for row in rows if row.method == method])
        lines.append(
            Line(method, [(100 * fmean(row.fraction for row in each), _percent_above(each)) for each in rounds])
        )
    axes = Axes("mean over all networks", "% of the candidates measured", "% above the best of all", log_y=True)
    return plot_lines({axes: lines}, path)


def _rounds(rows: Sequence[Quality]) -> list[list[Quality]]:
    """For every round the rows of all networks; a network that has ended keeps its last row."""
    networks = [
        [row for row in rows if row.network == network] for network in dict.fromkeys(row.network for row in rows)
    ]
    longest = max(map(len, networks))
    return [[network[min(number, len(network) - 1)] for network in networks] for number in range(longest)]


def _percent_above(rows: Sequence[Quality]) -> float:
    return 100 * fmean(row.ratio - 1 for row in rows)


def learned(samples: Sequence[Sample], rng: Random) -> Ranker:
    """A ranker by a cost model, or at random if there are too few samples."""
    model = CostModel.fit(samples)
    if model is None:
        return _shuffled(rng)

    def ranked(times: TaskTimes, names: Sequence[str]) -> list[str]:
        found = model.ranked(task_facts(times.task), [described(name) for name in names])
        return [each.descriptor for each in found]

    return ranked


def samples_of(times: TaskTimes, descriptors: Sequence[str]) -> Iterator[Sample]:
    """The samples of some variants of a task."""
    for variant in times.variants:
        if variant.descriptor in descriptors:
            yield Sample(task_facts(times.task), described(variant.descriptor), variant.seconds)


def _shuffled(rng: Random) -> Ranker:
    return lambda times, names: rng.sample(names, len(names))


def layer_counts(tables: NetworkTables) -> Counter[str]:
    """The number of a network's layers with each task, by key."""
    return Counter(task.task.key for task in tables.tasks.values())


def jobs(tables: Sequence[NetworkTables]) -> Iterator[Job]:
    """A job for each network: its tasks with enough candidates, and samples of the other networks."""
    for own in tables:
        tasks = {task.task.key: task for task in own.tasks.values()}
        others = {task.task.key: task for other in tables if other is not own for task in other.tasks.values()}
        known = [
            sample
            for key, other in others.items()
            if key not in tasks
            for sample in samples_of(other, [variant.descriptor for variant in other.variants])
        ]
        layers = layer_counts(own)
        wide = tuple(task for task in tasks.values() if len(task.variants) >= _FEWEST_CANDIDATES)
        if wide:
            yield Job(own.network, wide, layers, tuple(known))


def replay(job: Job, method: str, fit: Fit, known: Sequence[Sample], seeds: int, rounds: int) -> list[Quality]:
    """The quality of a method after every round, in which it measures one more candidate of each task."""
    everything = _everything(job)
    runs = [_search(job, fit, known, Random(seed), everything, rounds) for seed in range(seeds)]
    return _qualities(job, method, runs)


def _everything(job: Job) -> dict[str, list[str]]:
    return {task.task.key: [variant.descriptor for variant in task.variants] for task in job.tasks}


def _qualities(job: Job, method: str, runs: Sequence[Sequence[Mapping[str, Sequence[str]]]]) -> list[Quality]:
    """The quality of several runs, round by round."""
    everything = _everything(job)
    best, total = job.cost(everything), sum(map(len, everything.values()))
    rows = []
    for states in zip(*runs, strict=True):
        ratios = [job.cost(measured) / best for measured in states]
        count = sum(map(len, states[0].values()))
        rows.append(Quality(job.network, method, count, count / total, fmean(ratios), max(ratios)))
    return rows


def _search(
    job: Job,
    fit: Fit,
    known: Sequence[Sample],
    rng: Random,
    everything: Mapping[str, Sequence[str]],
    rounds: int,
) -> list[dict[str, list[str]]]:
    """The measured candidates of every task after each round; the last round measures all others."""
    measured = {key: [names[0]] for key, names in everything.items()}
    states = [dict(measured)]
    for done in range(rounds):
        ranker = fit([*job.samples(measured), *known], rng)
        count = 1 if done < rounds - 1 else math.inf
        for task in job.tasks:
            key = task.task.key
            left = [name for name in everything[key] if name not in measured[key]]
            ranked = ranker(task, left) if left else []
            measured[key] = [*measured[key], *(name for index, name in enumerate(ranked) if index < count)]
        states.append(dict(measured))
    return states
