"""Which variants are worth measuring: an analytic model first, then rounds of what a learned one expects to gain by.

ACLTuner's loop (Kwon et al., 2023, section 2.2) with a start that is not random. Its rounds take what it predicts to be
fastest and two at random per task; here all tasks share a round, and what a variant is expected to gain for the whole
network decides, so that little is spent on layers that hardly count. Without knowledge from other networks, the first
round spreads over routines and layouts, which is what random samples would be for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sartor.codegen.winograd import ROUNDED_FORMS
from sartor.tuning.cost_model import CostModel, Sample
from sartor.tuning.features import Described, analytic_cycles, weight_bytes

Picks = Mapping[str, tuple[str, ...]]
"""Descriptors to measure, by task key."""

Times = Mapping[str, Mapping[str, float | None]]
"""Seconds of what was measured, by task key and descriptor; None where it failed."""


class Search(StrEnum):
    """How many variants are measured."""

    MODEL = "model"
    FULL = "full"


@dataclass(frozen=True)
class Searched:
    """A task as the search sees it.

    Attributes:
        key: of the task.
        facts: as ``task_facts`` writes them.
        variants: descriptors, candidate 0 first.
        count: layers of the network that it stands for.
    """

    key: str
    facts: str
    variants: tuple[str, ...]
    count: int


@dataclass(frozen=True)
class SearchSettings:
    """How far the search goes.

    Attributes:
        rounds: after the first, at most.
        share: what a round may cost, relative to the first.
        most: variants of a task in a round.
        optimism: by which a prediction is multiplied: what is little known may be faster than it looks.
        gain: share of the network's time that a variant must be expected to save.
        layout_weight: how much it counts to be faster than others in the same form only, layout and element type,
            which the neighbours may want.
        first: variants of a task and form in the first round if a model knows other networks.
    """

    rounds: int = 2
    share: float = 0.33
    most: int = 3
    optimism: float = 0.9
    gain: float = 0.001
    layout_weight: float = 0.3
    first: int = 2


# What compiling a variant takes, relative to a kernel that is no Winograd kernel.
_COMPILING = {"fused_winograd": 3.0, **dict.fromkeys(ROUNDED_FORMS, 3.0), "stock": 1.5}
# Weights that are packed and put on the device, for a variant and what it is timed beside, in the time that a short
# kernel takes to compile.
_PACKED_BYTES = 20e6
# A form that is this much slower than another is not looked into: converting costs less.
_FAR = 1.1
# Families whose kernels multiply narrower numbers, of which fewer networks are known.
_NARROW = ("tiles", "dots", *ROUNDED_FORMS)
# The analytic model is not wrong by so much.
_FAR_SLOWER = 2.0


@dataclass
class VariantSearch:
    """The rounds of one network.

    Attributes:
        tasks: what to search.
        samples: what is known of other tasks on this machine.
        settings: how far to go.
    """

    tasks: Sequence[Searched]
    samples: Sequence[Sample] = ()
    settings: SearchSettings = field(default_factory=SearchSettings)

    def first(self, known: Times) -> dict[str, tuple[str, ...]]:
        """What to measure before anything else, of what is not known: candidate 0 and the best guesses."""
        model = CostModel.fit(self.samples)
        guesses = {task.key: (task.variants[0], *self._guesses(task, model)) for task in self.tasks}
        return _new({key: tuple(dict.fromkeys(listed)) for key, listed in guesses.items()}, known)

    def later(self, known: Times, spent: float) -> dict[str, tuple[str, ...]]:
        """What else to measure: the variants that gain most for what they take to compile.

        Args:
            known: what was measured.
            spent: ``effort`` of the first round.
        """
        model = CostModel.fit([*self._measured(known), *self.samples])
        if model is None:
            return {}
        least = self.settings.gain * sum(task.count * (_best(known, task) or 0.0) for task in self.tasks)
        offers = [each for task in self.tasks for each in self._offers(task, known, model) if each.gain >= least]
        offers.sort(key=lambda each: (-each.gain / each.cost, each.key, each.variant))
        return self._affordable(offers, spent * self.settings.share)

    def effort(self, picks: Picks) -> float:
        """What picks take to compile, relative to one short kernel."""
        return sum(_compiling(Described.of(name)) for listed in picks.values() for name in listed)

    def _affordable(self, offers: Sequence[_Offer], budget: float) -> dict[str, tuple[str, ...]]:
        taken: Counter[str] = Counter()
        picked: dict[str, tuple[str, ...]] = {}
        for each in offers:
            if each.cost <= budget and taken[each.key] < self.settings.most:
                taken[each.key] += 1
                budget -= each.cost
                picked[each.key] = (*picked.get(each.key, ()), each.variant)
        return picked

    def _measured(self, known: Times) -> list[Sample]:
        return [
            Sample(task.facts, name, seconds)
            for task in self.tasks
            for name, seconds in known.get(task.key, {}).items()
            if seconds is not None
        ]

    def _guesses(self, task: Searched, model: CostModel | None) -> Iterator[str]:
        kernels = task.variants[1:]
        if model is None:
            for listed in _groups(kernels, lambda each: each.form):
                yield from _leaders(task.facts, listed)
            return
        for listed in _groups(kernels, lambda each: each.form):
            yield from model.ranked(task.facts, listed)[: self.settings.first]
            # Sizes that no layer of the other networks had are beyond what the trees know.
            yield from _leaders(task.facts, [each for each in listed if Described.of(each).family.startswith(_NARROW)])

    def _offers(self, task: Searched, known: Times, model: CostModel) -> Iterator[_Offer]:
        rest = [each for each in task.variants if each not in known.get(task.key, {})]
        best = _best(known, task)
        if not rest or best is None:
            return
        for name, predicted in zip(rest, model.seconds(task.facts, rest), strict=True):
            variant = Described.of(name)
            hoped = predicted * self.settings.optimism
            beside = min(_best(known, task, variant.form) or _FAR * best, _FAR * best)
            gain = max(0.0, best - hoped) + self.settings.layout_weight * max(0.0, beside - hoped)
            yield _Offer(task.key, name, task.count * gain, _cost(variant, task.facts))


@dataclass(frozen=True)
class _Offer:
    """Seconds of an inference that a variant may save, and what it costs to find out."""

    key: str
    variant: str
    gain: float
    cost: float


def _groups(names: Sequence[str], key: Callable[[Described], object]) -> list[list[str]]:
    """Descriptors that are alike, in the order in which the first of them comes."""
    groups: dict[object, list[str]] = {}
    for name in names:
        groups.setdefault(key(Described.of(name)), []).append(name)
    return list(groups.values())


def _leaders(facts: str, names: Sequence[str]) -> Iterator[str]:
    """The best of each routine by the analytic model; none of those that it takes to be far slower than another, unless
    that one is less exact."""
    cycles = {name: analytic_cycles(facts, Described.of(name)) or 0.0 for name in names}
    leaders = [min(listed, key=lambda name: cycles[name]) for listed in _groups(names, lambda each: each.family)]
    exact = [cycles[name] for name in leaders if cycles[name] and Described.of(name).family not in ROUNDED_FORMS]
    least = min(exact, default=math.inf)
    return (name for name in leaders if cycles[name] <= _FAR_SLOWER * least)


def _cost(variant: Described, facts: str) -> float:
    return _compiling(variant) + weight_bytes(facts) / _PACKED_BYTES


def _compiling(variant: Described) -> float:
    return _COMPILING.get(variant.family, 1.0)


def _best(known: Times, task: Searched, form: tuple[str, bool, bool] | None = None) -> float | None:
    times = [
        seconds
        for name, seconds in known.get(task.key, {}).items()
        if seconds is not None and form in (None, Described.of(name).form)
    ]
    return min(times, default=None)


def _new(picks: Picks, known: Times) -> dict[str, tuple[str, ...]]:
    """Picks without what is known, and without tasks of which everything is."""
    left = {key: tuple(each for each in listed if each not in known.get(key, {})) for key, listed in picks.items()}
    return {key: listed for key, listed in left.items() if listed}
