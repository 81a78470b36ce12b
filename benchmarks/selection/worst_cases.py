"""Whether choosing the variant with the best worst case makes plans that are predicted any better.

The package's times are predicted by models that have not seen the task, or not the family of kernels. Of each task the
variant is chosen that is predicted to be fastest, or the one whose time is least if predictions err by a multiple of
their spread to the worse: that of its kind of kernel, or a given one if the package knows no such kernel. What the
chosen one takes is compared with the fastest of the task.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from sartor.codegen.ir.machines.core import WIDE
from sartor.tuning.search.cost_model import Sample
from sartor.tuning.search.outlook import SPREAD, errors_of
from sartor.tuning.search.shipped.likeness import guide, kin, kin_in, predicted_seconds

_FOLDS = 5
_MULTIPLES = (0.0, 0.5, 1.0, 2.0)
# Fewer times of a kind of kernel tell nothing of its spread, or of how it is chosen.
_FEWEST_ERRORS, _FEWEST_TIMES = 8, 40
_NEAR = 2.0
# Of a normal distribution, the standard deviation as a multiple of the median deviation.
_PER_MEDIAN = 1.4826

Tasks = Mapping[str, Sequence[Sample]]
Predicted = Mapping[int, float]


@dataclass(frozen=True)
class Rule:
    """What choosing by a multiple of the spread costs, as multiples of the fastest variants' times.

    Attributes:
        held_out: what the models have not seen.
        multiple: of the spread, by which predictions are taken to err.
        tasks: of which a variant was chosen.
        mean: geometric.
        high: which 99 of 100 tasks keep to.
        worst: of one task.
    """

    held_out: str
    multiple: float
    tasks: int
    mean: float
    high: float
    worst: float


def run(samples: Sequence[Sample]) -> list[Rule]:
    """Choose by each multiple, with tasks held out and with families of kernels held out."""
    return [*_by_kinds(_tasks(samples)), *_by_families(samples)]


def _tasks(samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    tasks: defaultdict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        tasks[sample.facts].append(sample)
    return tasks


def _by_kinds(tasks: Tasks) -> Iterator[Rule]:
    predicted = _crosswise(tasks)
    spreads = _spreads(tasks, predicted)

    def spread(sample: Sample) -> float:
        return spreads.get(kin(sample.variant), SPREAD)

    for multiple in _MULTIPLES:
        yield _rule("tasks", multiple, _regrets(tasks, predicted, spread, multiple))


def _crosswise(tasks: Tasks) -> dict[int, float]:
    """Predictions of samples, by identity, of models that have not seen their tasks."""
    names = sorted(tasks)
    random.Random(0).shuffle(names)
    predicted: dict[int, float] = {}
    for fold in range(_FOLDS):
        apart = {*names[fold::_FOLDS]}
        model = guide([sample for name in names if name not in apart for sample in tasks[name]])
        for name in apart if model is not None else ():
            seconds = model.seconds(name, [sample.variant for sample in tasks[name]]) if model is not None else []
            predicted |= {id(sample): one for sample, one in zip(tasks[name], seconds, strict=True)}
    return predicted


def _spreads(tasks: Tasks, predicted: Predicted) -> dict[object, float]:
    """The spread of predictions by kind of kernel, of those near the fastest of their task."""
    errors: defaultdict[object, list[float]] = defaultdict(list)
    for listed in tasks.values():
        least = min(sample.seconds for sample in listed)
        near = [sample for sample in listed if sample.seconds <= _NEAR * least and id(sample) in predicted]
        pairs = [(sample.seconds, predicted[id(sample)]) for sample in near]
        for sample, error in zip(near, errors_of(pairs) if len(pairs) > 1 else [], strict=False):
            errors[kin(sample.variant)].append(abs(error))
    return {kind: _PER_MEDIAN * median(found) for kind, found in errors.items() if len(found) >= _FEWEST_ERRORS}


def _by_families(samples: Sequence[Sample]) -> Iterator[Rule]:
    """As many rules, each over the tasks of all families that were held out in turn."""
    regrets: dict[float, list[float]] = {multiple: [] for multiple in _MULTIPLES}
    families: defaultdict[tuple[str, str], list[Sample]] = defaultdict(list)
    for sample in samples:
        families[_family(sample)].append(sample)
    for family, own in sorted(families.items()):
        if len(own) < _FEWEST_TIMES or family[1] == "stock":
            continue
        tasks = _with_others(samples, {sample.facts for sample in own}, family)
        predicted = _without(samples, tasks, family)
        for multiple in _MULTIPLES if predicted else ():
            apart = _spread_of(family)
            regrets[multiple] += _regrets(tasks, predicted, apart, multiple)
    for multiple, found in regrets.items():
        yield _rule("families of kernels", multiple, found)


def _spread_of(family: tuple[str, str]) -> Callable[[Sample], float]:
    return lambda sample: SPREAD if _family(sample) == family else 0.0


def _family(sample: Sample) -> tuple[str, str]:
    return sample.variant.dtype, sample.variant.traits.family or sample.variant.routine


def _with_others(samples: Sequence[Sample], names: set[str], family: tuple[str, str]) -> Tasks:
    """The tasks of a family of which other kernels were measured, too."""
    tasks = _tasks([sample for sample in samples if sample.facts in names])
    return {name: listed for name, listed in tasks.items() if any(_family(each) != family for each in listed)}


def _without(samples: Sequence[Sample], tasks: Tasks, family: tuple[str, str]) -> Predicted:
    rest = [sample for sample in samples if _family(sample) != family]
    model, seen = guide(rest), kin_in(rest)
    predicted: dict[int, float] = {}
    for name, listed in tasks.items() if model is not None else ():
        seconds = predicted_seconds(name, [sample.variant for sample in listed], model, seen, WIDE)
        predicted |= {id(sample): one for sample, one in zip(listed, seconds, strict=True)}
    return predicted


def _regrets(tasks: Tasks, predicted: Predicted, spread: Callable[[Sample], float], multiple: float) -> list[float]:
    """What the chosen variant of each task takes, as a multiple of the fastest one's time."""

    def worst_case(sample: Sample) -> float:
        return predicted[id(sample)] * math.exp(multiple * spread(sample))

    known = [[sample for sample in listed if id(sample) in predicted] for listed in tasks.values()]
    return [
        min(listed, key=worst_case).seconds / min(sample.seconds for sample in listed)
        for listed in known
        if len(listed) > 1
    ]


def _rule(held_out: str, multiple: float, regrets: Sequence[float]) -> Rule:
    ordered = sorted(regrets) or [math.nan]
    mean = math.exp(fmean(map(math.log, ordered)))
    return Rule(held_out, multiple, len(regrets), mean, ordered[int(0.99 * len(ordered))], ordered[-1])
