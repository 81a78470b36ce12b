"""Selects the variants to measure: first by an analytic model, then in rounds by the gain that a learned one predicts.

This is ACLTuner's loop (Kwon et al., 2023, section 2.2) with a start that is not random. ACLTuner's rounds measure the
variants predicted to be fastest and two random ones per task. Here all tasks share a round, and the predicted gain for
the whole network decides, so that little time is spent on layers that hardly matter. Without measurements of other
networks, the first round covers all routines and layouts, which replaces random samples. With those of many, which are
part of the package for some machines, it is small (``shipped/informed.py``).
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sartor.codegen.ir.machines.core import WIDE, Core
from sartor.codegen.ir.variants.traits import DescribedVariant, Traits
from sartor.tuning.search.cost_model import CostModel, Sample
from sartor.tuning.search.leaders import groups, leaders
from sartor.tuning.search.outlook import Outlook, foreseen_seconds, outlook
from sartor.tuning.search.search_settings import SearchSettings
from sartor.tuning.search.searched import Picks, Searched, Times, best_time, cost_of, working_times
from sartor.tuning.search.shipped.informed import fastest, promising
from sartor.tuning.search.shipped.likeness import guide, joint_model, kin
from sartor.tuning.search.workgroups import WORKGROUP_PARAMETERS


@dataclass
class VariantSearch:
    """The search for one network, round by round.

    Attributes:
        tasks: the network's tasks.
        samples: measured times of other tasks on this machine.
        settings: limits.
        shipped: measured times of many networks on a machine of this kind, which are part of the package.
        guided_by: the ``guide`` of these, if the caller has it already.
        core: of the machine, as for ``features``.
    """

    tasks: Sequence[Searched]
    samples: Sequence[Sample] = ()
    settings: SearchSettings = field(default_factory=SearchSettings)
    shipped: Sequence[Sample] = ()
    guided_by: CostModel | None = None
    core: Core = WIDE

    def first(self, known: Times) -> dict[str, tuple[str, ...]]:
        """The first round: candidate 0 and the best variants by prediction, except those that are ``known``."""
        picked = self._informed() if self.shipped else self._uninformed()
        guesses = {task.key: (task.variants[0], *picked[task.key]) for task in self.tasks}
        names = {key: [variant.descriptor for variant in listed] for key, listed in guesses.items()}
        return _new({key: tuple(dict.fromkeys(listed)) for key, listed in names.items()}, known)

    def later(self, known: Times, spent: float) -> dict[str, tuple[str, ...]]:
        """A later round: the variants with the largest predicted gain per compilation cost.

        Args:
            known: measured times.
            spent: ``effort`` of the first round.
        """
        model = self._model([*self._measured(known), *self.samples])
        if model is None:
            return {}
        seconds = foreseen_seconds(self.tasks, known, model)
        least = self.settings.gain * seconds
        offers = [offer for task in self.tasks for offer in self._offers(task, known, model) if offer.gain >= least]
        if _promised(offers) < self.settings.until * seconds:
            return {}
        offers.sort(key=lambda offer: (-offer.gain / offer.cost, offer.key, offer.variant))
        return self._affordable(offers, spent * self.settings.share)

    def _model(self, samples: Sequence[Sample]) -> CostModel | None:
        """A model of samples of this machine and of those that are part of the package."""
        return joint_model(samples, self.shipped, self._guide, self.core)

    @functools.cached_property
    def _guide(self) -> CostModel | None:
        return self.guided_by or guide(self.shipped)

    def effort(self, picks: Picks) -> float:
        """The cost of compiling the picks, as a multiple of one short kernel's."""
        variants = {task.key: {variant.descriptor: variant for variant in task.variants} for task in self.tasks}
        return sum(variants[key][name].traits.compile_cost for key, listed in picks.items() for name in listed)

    def outlook(self, picks: Picks, known: Times) -> Outlook:
        """What measuring the picks of each task promises to save; nothing if there is no model that predicts.

        The guide predicts if there is one, as it has not learned from what was measured.
        """
        model = self._guide or self._model([*self._measured(known), *self.samples])
        return Outlook({}, 0.0) if model is None else outlook(self.tasks, picks, known, model)

    def _affordable(self, offers: Sequence[_Offer], budget: float) -> dict[str, tuple[str, ...]]:
        taken: Counter[str] = Counter()
        picked: dict[str, tuple[str, ...]] = {}
        for offer in offers:
            if offer.cost <= budget and taken[offer.key] < self.settings.most:
                taken[offer.key] += 1
                budget -= offer.cost
                picked[offer.key] = (*picked.get(offer.key, ()), offer.variant)
        return picked

    def _measured(self, known: Times) -> list[Sample]:
        return [
            Sample(task.facts, variant, seconds)
            for task in self.tasks
            for variant, seconds in working_times(known, task)
            if not variant.traits.is_free
        ]

    def _uninformed(self) -> dict[str, list[DescribedVariant]]:
        """The best variants of each layout, where no other network was measured or few were."""
        model = CostModel.fit(self.samples, core=self.core)
        return {task.key: [*self._guesses(task, task.variants[1:], model)] for task in self.tasks}

    def _informed(self) -> dict[str, list[DescribedVariant]]:
        """The best variants, where many networks were measured; as if uninformed where these tell nothing."""
        model = self._model(self.samples) if self.samples else self._guide
        if model is None:
            return self._uninformed()
        own = CostModel.fit(self.samples)
        seen = {kin(sample.variant) for sample in self.shipped}
        known = {task.key: [variant for variant in task.variants[1:] if kin(variant) in seen] for task in self.tasks}
        seconds = {task.key: task.count * fastest(task.facts, known[task.key], model) for task in self.tasks}
        total = sum(seconds.values()) or 1.0
        return {
            task.key: [
                *self._promising(task, known[task.key], model, seconds[task.key] / total),
                *self._guesses(task, [variant for variant in task.variants[1:] if kin(variant) not in seen], own),
            ]
            for task in self.tasks
        }

    def _promising(
        self, task: Searched, variants: Sequence[DescribedVariant], model: CostModel, share: float
    ) -> Iterator[DescribedVariant]:
        firsts = [listed[0] for listed in groups(variants, lambda variant: variant.routine)]
        others = {variant.descriptor for first in firsts for variant in _in_other_workgroups(first, variants)}
        known = [variant for variant in variants if variant.descriptor not in others]
        picks = [*promising(task.facts, known, model, share, self.settings.informed)]
        yield from picks
        if self.settings.threads > 1 and picks:
            yield from _in_other_workgroups(picks[0], variants)

    def _guesses(
        self, task: Searched, variants: Sequence[DescribedVariant], model: CostModel | None
    ) -> Iterator[DescribedVariant]:
        for listed in groups(variants, lambda variant: variant.format_class):
            if model is None:
                picks = [*leaders(task.facts, listed, self.core)]
            else:
                # Trees cannot extrapolate to sizes that no measured layer had, and few networks are measured in
                # narrower types. So the analytic model's choice is added.
                # Filters in fewer bytes are chosen for what they save when they are read, not for speed alone.
                others = [variant for variant in listed if variant.traits.instruction or _reads_less(variant.traits)]
                picks = [
                    *model.ranked(task.facts, listed)[: self.settings.first],
                    *leaders(task.facts, others, self.core),
                ]
            yield from picks
            if self.settings.threads > 1 and picks:
                yield from _in_other_workgroups(picks[0], listed)

    def _offers(self, task: Searched, known: Times, model: CostModel) -> Iterator[_Offer]:
        rest = [variant for variant in task.variants if variant.descriptor not in known.get(task.key, {})]
        best = best_time(known, task)
        if not rest or best is None:
            return
        for variant, predicted in zip(rest, model.seconds(task.facts, rest), strict=True):
            hoped = predicted * self.settings.optimism
            far = self.settings.far * best
            beside = min(best_time(known, task, variant.format_class) or far, far)
            gain = max(0.0, best - hoped) + self.settings.layout_weight * max(0.0, beside - hoped)
            yield _Offer(task.key, variant.descriptor, task.count * gain, cost_of(variant, task.facts))


def _reads_less(traits: Traits) -> bool:
    return traits.weights is not None or traits.transforms_filters


@dataclass(frozen=True)
class _Offer:
    """A variant of a task (``key``), the seconds of an inference that it may save, and the cost of measuring it."""

    key: str
    variant: str
    gain: float
    cost: float


def _promised(offers: Sequence[_Offer]) -> float:
    """Seconds of an inference that the best variants of all tasks may save together."""
    best: dict[str, float] = {}
    for offer in offers:
        best[offer.key] = max(offer.gain, best.get(offer.key, 0.0))
    return sum(best.values())


def _in_other_workgroups(picked: DescribedVariant, variants: Sequence[DescribedVariant]) -> Iterator[DescribedVariant]:
    """Variants that differ from the first of the picked routine only in the number of workgroups.

    Neither model knows what the number costs: the analytic one ignores it, and a learned one has seen few.
    """
    of_routine = [variant for variant in variants if variant.routine == picked.routine]
    return (variant for variant in of_routine[1:] if _tiles(variant) == _tiles(of_routine[0]))


def _tiles(variant: DescribedVariant) -> dict[str, int]:
    """The parameters of a variant without numbers of workgroups."""
    return {name: value for name, value in variant.parameters.items() if name not in WORKGROUP_PARAMETERS}


def _new(picks: Picks, known: Times) -> dict[str, tuple[str, ...]]:
    """Picks that are not known yet; tasks without such picks are left out."""
    left = {
        key: tuple(variant for variant in listed if variant not in known.get(key, {})) for key, listed in picks.items()
    }
    return {key: listed for key, listed in left.items() if listed}
