"""What a search may still find: the gains that the variants of all tasks promise together.

A variant that is predicted to be slower than the present choice may be faster, and the more so the further predictions
spread. Both times are taken as lognormal, so that the mean of what the faster one saves is Margrabe's formula (The
value of an option to exchange one asset for another, 1978). Bayesian optimisation calls it expected improvement (Jones,
Schonlau and Welch, 1998).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, median

from sartor.tuning.search.cost_model import CostModel
from sartor.tuning.search.searched import Picks, Searched, Times, best_time, cost_of, working_times
from sartor.tuning.search.shipped.informed import fastest

SPREAD = 0.2
"""Standard deviation of the logarithm of measured over predicted times, where few were measured."""

_FEWEST, _FEWEST_TASKS = 8, 2
_LEAST = 0.01
# Of a normal distribution, the standard deviation as a multiple of the median deviation, which ignores single outliers.
_PER_MEDIAN = 1.4826
# Of one error; the relative standard error of a spread by the median deviation falls with the root of their number.
_DOUBT = 1.17
_NORMAL = NormalDist()


def spread_of(tasks: Iterable[Sequence[tuple[float, float]]]) -> float:
    """The spread of predictions of a task's variants, by pairs of a measured and a predicted time for each task.

    A factor that they have in common is none: it does not change which variant is faster. Errors of a single task, as
    few errors, say nothing of other tasks. Of others it is the spread and its own standard error: the fewer were
    measured, the more the rest promises.
    """
    telling = [errors_of(pairs) for pairs in tasks if len(pairs) > 1]
    errors = [abs(error) for listed in telling for error in listed]
    if len(telling) < _FEWEST_TASKS or len(errors) < _FEWEST:
        return SPREAD
    return max(_LEAST, _PER_MEDIAN * median(errors)) * (1 + _DOUBT / math.sqrt(len(errors)))


def errors_of(pairs: Sequence[tuple[float, float]]) -> list[float]:
    """Errors of the logarithms of one task's predictions, by pairs of a measured and a predicted time.

    They are without their median; what taking that away takes from their spread is given back.
    """
    logs = [math.log(measured / predicted) for measured, predicted in pairs]
    middle = median(logs)
    return [(log - middle) * math.sqrt(len(logs) / (len(logs) - 1)) for log in logs]


def expected_gain(present: float, predicted: float, spread: float) -> float:
    """The mean of what choosing the faster of two variants saves.

    Args:
        present: seconds of the variant that would be chosen otherwise.
        predicted: seconds of the other one.
        spread: of the logarithm of the ratio of both.
    """
    above = (math.log(present / predicted) + spread**2 / 2) / spread
    # Far apart, both products are equal but for rounding.
    return max(0.0, present * _NORMAL.cdf(above) - predicted * _NORMAL.cdf(above - spread))


# Of the fastest variant's time.
_NEAR = 2.0


@dataclass(frozen=True)
class Promise:
    """What measuring variants of a task is expected to bring.

    Attributes:
        gain: seconds of an inference that it saves.
        cost: of compiling, as a multiple of one short kernel's.
    """

    gain: float
    cost: float

    @property
    def rate(self) -> float:
        """The gain for each unit of cost."""
        return self.gain / self.cost


@dataclass(frozen=True)
class Outlook:
    """What is still to be found.

    Attributes:
        promises: of tasks, by key; empty if nothing predicts.
        seconds: of an inference, as far as that is known or predicted.
    """

    promises: Mapping[str, Promise]
    seconds: float

    @property
    def gain(self) -> float:
        """Seconds of an inference that all promises save together."""
        return sum(promise.gain for promise in self.promises.values())

    def is_less_than(self, fraction: float) -> bool:
        """Whether all promises together are less than a fraction of an inference's time."""
        return bool(self.promises) and self.gain < fraction * self.seconds


def outlook(tasks: Sequence[Searched], picks: Picks, known: Times, model: CostModel) -> Outlook:
    """What measuring the picks of each task promises to save.

    Args:
        tasks: of the network.
        picks: what may be measured.
        known: what was measured.
        model: predicts. It should not have learned from what is ``known``: how far it errs there is taken for how far
            it errs on the rest.
    """
    told = {task.key: _near(_told(task, known, model)) for task in tasks}
    paces, spread = _paces(told), spread_of(told.values())
    pace = median(paces.values()) if paces else 1.0
    promises = {
        task.key: _promise(task, picks[task.key], known, replace(model, pace=paces.get(task.key, pace)), spread)
        for task in tasks
        if picks.get(task.key)
    }
    return Outlook(promises, foreseen_seconds(tasks, known, replace(model, pace=pace)))


def foreseen_seconds(tasks: Sequence[Searched], known: Times, model: CostModel) -> float:
    """Seconds of an inference by what is known, and by a model's predictions of the rest."""
    times = {task.key: best_time(known, task) or fastest(task.facts, task.variants, model) for task in tasks}
    return sum(task.count * times[task.key] for task in tasks)


def pace_of(tasks: Sequence[Searched], known: Times, model: CostModel) -> float:
    """How many times as long as a model says tasks take, in the median of those that were measured; 1 if none was."""
    return median(_paces({task.key: _near(_told(task, known, model)) for task in tasks}).values() or [1.0])


def _paces(told: Mapping[str, Sequence[tuple[float, float]]]) -> dict[str, float]:
    return {key: median(seconds / predicted for seconds, predicted in pairs) for key, pairs in told.items() if pairs}


def _promise(task: Searched, picked: Sequence[str], known: Times, model: CostModel, spread: float) -> Promise:
    variants = [variant for variant in task.variants if not variant.traits.is_free]
    names = [variant.descriptor for variant in variants]
    predicted = dict(zip(names, model.seconds(task.facts, variants), strict=True))
    if not predicted:
        return Promise(0.0, 1.0)
    chosen = min(predicted, key=predicted.__getitem__)
    best = best_time(known, task)
    # A predicted choice may be slower than predicted, as the others may.
    present, spread = (predicted[chosen], math.sqrt(2) * spread) if best is None else (best, spread)
    others = [
        variant
        for variant in variants
        if variant.descriptor in picked and not (best is None and variant.descriptor == chosen)
    ]
    gains = [expected_gain(present, predicted[other.descriptor], spread) for other in others]
    cost = sum(cost_of(variant, task.facts) for variant in variants if variant.descriptor in picked)
    return Promise(task.count * max(gains, default=0.0), max(cost, 1.0))


def _told(task: Searched, known: Times, model: CostModel) -> list[tuple[float, float]]:
    """Measured and predicted seconds of a task's variants."""
    measured = [(variant, seconds) for variant, seconds in working_times(known, task) if not variant.traits.is_free]
    predicted = model.seconds(task.facts, [variant for variant, _ in measured])
    return [(seconds, predicted_seconds) for (_, seconds), predicted_seconds in zip(measured, predicted, strict=True)]


def _near(pairs: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those that are not far slower than the fastest: how well others are predicted decides nothing."""
    least = min((seconds for seconds, _ in pairs), default=0.0)
    return [pair for pair in pairs if pair[0] <= _NEAR * least]
