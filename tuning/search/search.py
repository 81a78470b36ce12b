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

from sartor.codegen.analysis.task_bounds import weight_bytes
from sartor.codegen.ir.variants.traits import DescribedVariant
from sartor.tuning.search.cost_model import CostModel, Sample
from sartor.tuning.search.features import analytic_cycles

Picks = Mapping[str, tuple[str, ...]]
"""Descriptors to measure, by task key."""

Times = Mapping[str, Mapping[str, float | None]]
"""Seconds of what was measured, by task key and descriptor; None where it failed."""


@dataclass(frozen=True)
class Searched:
    """A task as the search sees it.

    Attributes:
        key: of the task.
        facts: as ``task_facts`` writes them.
        variants: candidate 0 first.
        count: layers of the network that it stands for.
    """

    key: str
    facts: str
    variants: tuple[DescribedVariant, ...]
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
        layout_weight: how much it counts to be faster than others in the same schema only, layout and element type,
            which the neighbours may want.
        first: variants of a task and schema in the first round if a model knows other networks.
    """

    rounds: int = 2
    share: float = 0.33
    most: int = 3
    optimism: float = 0.9
    gain: float = 0.001
    layout_weight: float = 0.3
    first: int = 2


# Weights that are packed and put on the device, for a variant and what it is timed beside, in the time that a short
# kernel takes to compile.
_PACKED_BYTES = 20e6
# A schema that is this much slower than another is not looked into: converting costs less.
_FAR = 1.1
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
        names = {key: [each.descriptor for each in listed] for key, listed in guesses.items()}
        return _new({key: tuple(dict.fromkeys(listed)) for key, listed in names.items()}, known)

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
        variants = {task.key: {each.descriptor: each for each in task.variants} for task in self.tasks}
        return sum(variants[key][name].traits.compile_cost for key, listed in picks.items() for name in listed)

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
        return [Sample(task.facts, each, seconds) for task in self.tasks for each, seconds in _times(known, task)]

    def _guesses(self, task: Searched, model: CostModel | None) -> Iterator[DescribedVariant]:
        for listed in _groups(task.variants[1:], lambda each: each.schema):
            if model is None:
                yield from _leaders(task.facts, listed)
                continue
            yield from model.ranked(task.facts, listed)[: self.settings.first]
            # Sizes that no layer of the other networks had are beyond what the trees know, and of kernels that
            # multiply narrower numbers fewer networks are known.
            yield from _leaders(task.facts, [each for each in listed if each.traits.instruction is not None])

    def _offers(self, task: Searched, known: Times, model: CostModel) -> Iterator[_Offer]:
        rest = [each for each in task.variants if each.descriptor not in known.get(task.key, {})]
        best = _best(known, task)
        if not rest or best is None:
            return
        for variant, predicted in zip(rest, model.seconds(task.facts, rest), strict=True):
            hoped = predicted * self.settings.optimism
            beside = min(_best(known, task, variant.schema) or _FAR * best, _FAR * best)
            gain = max(0.0, best - hoped) + self.settings.layout_weight * max(0.0, beside - hoped)
            yield _Offer(task.key, variant.descriptor, task.count * gain, _cost(variant, task.facts))


@dataclass(frozen=True)
class _Offer:
    """Seconds of an inference that a variant may save, and what it costs to find out."""

    key: str
    variant: str
    gain: float
    cost: float


def _groups(
    variants: Sequence[DescribedVariant], key: Callable[[DescribedVariant], object]
) -> list[list[DescribedVariant]]:
    """Variants that are alike, in the order in which the first of them comes."""
    groups: dict[object, list[DescribedVariant]] = {}
    for each in variants:
        groups.setdefault(key(each), []).append(each)
    return list(groups.values())


def _leaders(facts: str, variants: Sequence[DescribedVariant]) -> Iterator[DescribedVariant]:
    """The best of each routine by the analytic model; none of those that it takes to be far slower than another, unless
    that one is less exact."""
    cycles = {each.descriptor: analytic_cycles(facts, each) or 0.0 for each in variants}
    of_routines = _groups(variants, lambda each: each.routine)
    leaders = [min(listed, key=lambda each: cycles[each.descriptor]) for listed in of_routines]
    exact = [cycles[each.descriptor] for each in leaders if not each.traits.rounds_between]
    least = min(filter(None, exact), default=math.inf)
    return (each for each in leaders if cycles[each.descriptor] <= _FAR_SLOWER * least)


def _cost(variant: DescribedVariant, facts: str) -> float:
    return variant.traits.compile_cost + weight_bytes(facts) / _PACKED_BYTES


def _times(known: Times, task: Searched) -> Iterator[tuple[DescribedVariant, float]]:
    """Variants of a task that work, with their seconds, in the order in which they became known."""
    variants = {each.descriptor: each for each in task.variants}
    for name, seconds in known.get(task.key, {}).items():
        if seconds is not None:
            yield variants[name], seconds


def _best(known: Times, task: Searched, schema: tuple[str, bool, bool] | None = None) -> float | None:
    times = [seconds for each, seconds in _times(known, task) if schema in (None, each.schema)]
    return min(times, default=None)


def _new(picks: Picks, known: Times) -> dict[str, tuple[str, ...]]:
    """Picks without what is known, and without tasks of which everything is."""
    left = {key: tuple(each for each in listed if each not in known.get(key, {})) for key, listed in picks.items()}
    return {key: listed for key, listed in left.items() if listed}
