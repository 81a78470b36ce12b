"""Runs a search: measures its picks round by round, until none is predicted to gain enough or the deadline passes."""

from __future__ import annotations

import functools
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from sartor.codegen.analysis.task_bounds import ideal_seconds
from sartor.codegen.digest import digest
from sartor.codegen.ir.machines.core import WIDE, Core
from sartor.codegen.ir.variants.traits import DescribedVariant
from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.records.measurement import CALLS_MARK, NO_TIME, Measurement, Status
from sartor.tuning.search.cost_model import FEWEST_SAMPLES, CostModel, Sample, load_ahead, samples_of
from sartor.tuning.search.doubts.contested import contested
from sartor.tuning.search.doubts.surprises import surprising
from sartor.tuning.search.found_so_far import FoundSoFar
from sartor.tuning.search.outlook import Outlook, pace_of
from sartor.tuning.search.search import VariantSearch
from sartor.tuning.search.search_settings import SearchSettings
from sartor.tuning.search.searched import Picks, Searched
from sartor.tuning.search.shipped.likeness import Kin, guide, kin_in, predicted_seconds

SEARCHED = ":searched"
"""Suffix of the descriptor under which the end of a task's search is stored."""

Measured = dict[str, dict[str, Measurement]]

_LOG = logging.getLogger(__name__)
# Least number of tasks that are measured between looks at what the rest promises, and for each compilation at a time:
# enough to keep all processors busy.
_PORTION, _AT_A_TIME = 4, 2


@dataclass(frozen=True)
class SearchRun:
    """A search that measures its picks.

    Attributes:
        tuner: measures variants.
        cases: tasks with all their variants.
        counts: number of the network's layers with each task, by key.
        settings: limits of the search.
        found: told how many variants may have to be measured yet; None if nobody wants to know.
        shipped: times of other networks on such a machine, which are part of the package.
        guided_by: the ``guide`` of these; None if there is none, or it is to be trained.
        core: of the target, for guesses where nothing was measured.
        limits: what else is measured with the first tasks.
    """

    tuner: Tuner
    cases: Sequence[BenchmarkCase]
    counts: Mapping[str, int]
    settings: SearchSettings = field(default_factory=SearchSettings)
    found: FoundSoFar | None = None
    shipped: Sequence[Sample] = ()
    guided_by: CostModel | None = None
    core: Core = WIDE
    limits: Sequence[BenchmarkCase] = ()

    def measured(self) -> Measured:
        """Run the search; returns measurements by task key and descriptor, those that were stored before included.

        A task whose search was completed is not searched again, even if the cost model has learned since; one that was
        searched beside other programs is, once the machine is quiet.
        """
        known = self.tuner.known(self.cases)
        open_cases = [case for case in self.cases if self._is_open(case, known)]
        if not open_cases:
            return known
        is_anew = self._made_anew(open_cases, known)
        known = self.tuner.known(self.cases) if is_anew else known
        tasks = [self._searched(case) for case in open_cases]
        search = VariantSearch(
            tasks, self._samples(open_cases), self.settings, self.shipped, self._guide, self.core.comparable
        )
        if not self.shipped and sum(len(case.variants) for case in open_cases) >= FEWEST_SAMPLES:
            load_ahead()
        picks = search.first(_times(known))
        if not picks and not is_anew and contested(open_cases, known):
            # Searched beside other programs, which are still there.
            return known
        cost = search.effort(search.first({}) if is_anew else picks)
        first = _size(picks)
        for number in range(self.settings.rounds):
            self._expect(_size(picks) + (self.settings.rounds - number) * first)
            self._measure(picks, known, search)
            known = self.tuner.known(self.cases)
            if not number:
                known = self._without_surprises(tasks, known, self.settings.rounds * first)
            if self.tuner.is_late or self._is_enough(search, known) or not (picks := search.later(_times(known), cost)):
                break
        else:
            self._expect(_size(picks))
            self._measure(picks, known, search)
        self.tuner.measure_anew(self._compared_with_the_wrong(open_cases))
        if not self.tuner.is_late:
            known = self.tuner.known(self.cases)
            # What was disturbed the next compilation searches: times beside other programs choose other variants.
            disturbed = {case.key for case in contested(open_cases, known)}
            disturbed |= {
                key
                for key, measurements in known.items()
                if any(measurement.is_transient for measurement in measurements.values())
            }
            ended = [case for case in open_cases if case.key not in disturbed]
            self.tuner.store.put_many(self._end(case, self.settings) for case in ended)
        return self.tuner.known(self.cases)

    def _made_anew(self, cases: Sequence[BenchmarkCase], known: Measured) -> bool:
        """Measure again what an earlier search chose by beside other programs, if the machine is quiet now."""
        doubted = contested(cases, known)
        if not doubted or self.tuner.is_late or not self.tuner.is_quiet():
            return False
        _LOG.info("%d kinds of layers are searched again: before, other programs took processors", len(doubted))
        self.tuner.measure_anew(doubted)
        return True

    def _without_surprises(self, tasks: Sequence[Searched], known: Measured, later: int) -> Measured:
        """Measure again what contradicts the package's times and decides, before the ``later`` variants at most;
        returns all that is known then.

        The package's times are those of one thread, and tell nothing of how layers scale.
        """
        if self._guide is None or self.settings.threads > 1 or self.tuner.is_late:
            return known
        surprises = surprising(tasks, _times(known), self.shipped, self._guide)
        if not surprises:
            return known
        _LOG.info("variants of %d kinds of layers are measured again: much slower than expected", len(surprises))
        self._expect(_size(surprises) + later)
        self._measure(surprises, known)
        return self.tuner.known(self.cases)

    @functools.cached_property
    def _guide(self) -> CostModel | None:
        return self.guided_by or guide(self.shipped)

    def _expect(self, variants: int) -> None:
        if self.found is not None:
            self.found.expect(variants)

    def _compared_with_the_wrong(self, cases: Sequence[BenchmarkCase]) -> list[BenchmarkCase]:
        """Cases whose candidate 0 proved wrong, with the variants that agreed with it, to be checked again."""
        known = self.tuner.known(cases)
        compared: list[BenchmarkCase] = []
        for case in cases:
            first, *others = case.variants
            judged = known[case.key].get(first.descriptor)
            if judged is not None and judged.status is Status.WRONG_RESULT:
                compiled = [other for other in others if self.tuner.has_compiled(case, other.descriptor)]
                right = [variant for variant in compiled if variant.descriptor in _ok(known[case.key])]
                compared += [replace(case, variants=(first, *right))] if right else []
        return compared

    def _is_open(self, case: BenchmarkCase, known: Measured) -> bool:
        if len(known[case.key]) == len(case.variants):
            return False
        # A search that left nothing out is also the end of one that may.
        ends = [self._end(case, settings).key for settings in (replace(self.settings, until=0.0), self.settings)]
        return all(self.tuner.store.get(key) is None for key in ends)

    def _searched(self, case: BenchmarkCase) -> Searched:
        variants = tuple(variant.described for variant in case.variants)
        return Searched(case.key, case.facts, variants, self.counts[case.key])

    def _samples(self, cases: Sequence[BenchmarkCase]) -> list[Sample]:
        """Stored samples of other tasks on this machine, of any network; of open sizes those of each call."""
        own = {case.key for case in cases}
        here = self.tuner.key(cases[0], cases[0].variants[0].descriptor)
        return samples_of(
            measurement
            for measurement in self.tuner.store.measurements(here_only=True)
            if measurement.key.task_key not in own
            and CALLS_MARK not in measurement.key.task
            and (measurement.key.threads, measurement.key.backend) == (here.threads, here.backend)
        )

    def _measure(self, picks: Picks, known: Measured, search: VariantSearch | None = None) -> None:
        """Measure picks beside candidate 0 and the fastest variants so far.

        What promises most is measured first if there is a deadline and a ``search`` that tells, else the tasks that
        take the most time: then both cores are busy until the end.
        """
        if search is not None and self.settings.until and not self.settings.whole_rounds:
            self._measure_while_it_pays(picks, known, search)
            return
        outlook = Outlook({}, 0.0)
        if search is not None and self.tuner.is_bounded:
            outlook = self._outlook(search, picks, known)
        self._measure_cases(picks, known, self._ordered(picks, outlook, known), self.limits)

    def _measure_while_it_pays(self, picks: Picks, known: Measured, search: VariantSearch) -> None:
        """Measure the picks of some tasks at a time, what promises most first, until the rest promises too little.

        Each portion tells how far predictions are off, and so what they promise. Before the first nothing tells: what
        was stored of a task or two, as other networks have them too, says little of the others.
        """
        telling = min(_PORTION, len(search.tasks))
        left, size = dict(picks), max(_PORTION, _AT_A_TIME * self.tuner.at_once)
        while left and not self.tuner.is_late:
            outlook = self._outlook(search, left, known)
            told = sum(bool(_ok(known[task.key])) for task in search.tasks)
            if told >= telling and outlook.is_less_than(self.settings.until):
                return
            portion = self._ordered(left, outlook, known)[: size if outlook.promises else None]
            self._measure_cases(picks, known, portion, self.limits)
            known = self.tuner.known(self.cases)
            for key in portion:
                del left[key]

    def _is_enough(self, search: VariantSearch, known: Measured) -> bool:
        """Whether all that is left of the tasks that were measured promises too little, which costs less to know than
        training a model that picks."""
        if not self.settings.until:
            return False
        names = {case.key: [variant.descriptor for variant in case.variants] for case in self.cases}
        left = {
            key: tuple(name for name in listed if name not in known[key]) for key, listed in names.items() if known[key]
        }
        return not any(left.values()) or self._outlook(search, left, known).is_less_than(self.settings.until)

    def _outlook(self, search: VariantSearch, picks: Picks, known: Measured) -> Outlook:
        """What picks promise, of which whoever wants to know what was found is told."""
        outlook = search.outlook(picks, _times(known))
        if self.found is not None and outlook.promises:
            self.found.foresee(outlook.seconds, outlook.gain)
        return outlook

    def _ordered(self, picks: Picks, outlook: Outlook, known: Measured) -> list[str]:
        """Tasks, those first of which the picks promise most for their cost; by their time where nothing predicts."""
        rates = {key: promise.rate for key, promise in outlook.promises.items()}
        return sorted(picks, key=lambda key: (-rates.get(key, 0.0), -self._time(key, known)))

    def _measure_cases(
        self, picks: Picks, known: Measured, keys: Iterable[str], others: Sequence[BenchmarkCase] = ()
    ) -> None:
        cases = {case.key: case for case in self.cases}
        unknown = [
            case
            for case, measurements in zip(others, self.tuner.known(others).values(), strict=True)
            if not measurements
        ]
        self.tuner.measure_anew([*(self._beside(cases[key], picks[key], known[key]) for key in keys), *unknown])

    def _beside(self, case: BenchmarkCase, picked: Collection[str], known: Mapping[str, Measurement]) -> BenchmarkCase:
        """A case of a task's picks, candidate 0 and the best variants so far, so that they are timed in one run."""
        first = case.variants[0].descriptor
        wanted = {first, *picked, *(name for name in _contenders(case, known) if self.tuner.has_compiled(case, name))}
        return replace(case, variants=tuple(variant for variant in case.variants if variant.descriptor in wanted))

    def _time(self, key: str, known: Measured) -> float:
        """The seconds that a task takes in the network, by measurements if there are any."""
        times = _ok(known[key]).values()
        (facts,) = {case.facts for case in self.cases if case.key == key}
        return self.counts[key] * min(times, default=ideal_seconds(facts))

    def _end(self, case: BenchmarkCase, settings: SearchSettings) -> Measurement:
        """The record that the search of a task was completed.

        Its key contains the candidates' code, the bound on their error, and what the search was allowed to leave out,
        by the task's part of this network: of another it may be a larger one.
        """
        first = case.variants[0]
        key = self.tuner.key(case, first.descriptor)
        sources = (self.tuner.key(case, variant.descriptor).source for variant in case.variants)
        codes = (f"{variant.descriptor} {code}" for variant, code in zip(case.variants, sources, strict=True))
        source = digest(str(self.tuner.max_error), *codes, *self._left_out(settings))
        return Measurement(replace(key, variant=f"{first.descriptor}{SEARCHED}", source=source), Status.OK, (1.0,))

    def _left_out(self, settings: SearchSettings) -> list[str]:
        """What decides which variants a search leaves out; nothing if it measures all that it picks."""
        if not settings.until:
            return []
        rounds = ["whole rounds"] if settings.whole_rounds else []
        counts = (f"{count} {key}" for key, count in sorted(self.counts.items()))
        return [f"until {settings.until}", *rounds, *counts]

    def guessed(self, known: Measured) -> Measured:
        """Predicted measurements for tasks without a measured variant that works.

        They are not stored. A variant that was not run may be wrong, so a network with it must be checked.
        """
        missing = [case for case in self.cases if not _ok(known[case.key])]
        if not missing:
            return {}
        samples: Sequence[Sample] = self.shipped
        if self._guide is None:
            samples = [*_samples_in(known), *self._samples(missing)]
            model = CostModel.fit(samples, core=self.core.comparable)
        else:
            tasks = [self._searched(case) for case in self.cases]
            model = replace(self._guide, pace=pace_of(tasks, _times(known), self._guide))
        seen = kin_in(samples)
        return {case.key: dict(self._predictions(case, model, seen, known[case.key])) for case in missing}

    def _predictions(
        self,
        case: BenchmarkCase,
        model: CostModel | None,
        seen: Set[Kin],
        known: Mapping[str, Measurement],
    ) -> Iterator[tuple[str, Measurement]]:
        missing = [variant for variant in case.variants if variant.descriptor not in known]
        variants = [variant.described for variant in missing]
        predicted = self._mean_seconds(case, variants, model, seen)
        for variant, seconds in zip(missing, predicted, strict=True):
            seconds = NO_TIME if variant.traits.is_free else seconds
            key, packed = self.tuner.key(case, variant.descriptor), case.packed_bytes(variant)
            yield variant.descriptor, Measurement(key, Status.OK, (seconds,), packed_bytes=packed, facts=case.facts)

    def _mean_seconds(
        self, case: BenchmarkCase, variants: Sequence[DescribedVariant], model: CostModel | None, seen: Set[Kin]
    ) -> list[float]:
        """Predicted seconds of variants: of a case of open sizes their mean over its calls, as code that takes another
        way with few places has a time with the mean of all sizes that no call has."""
        calls = [(call.of.share, call.facts) for call in case.timed] or [(1.0, case.facts)]
        times = [
            (share, predicted_seconds(facts, variants, model, seen, self.core, is_open=bool(case.calls)))
            for share, facts in calls
        ]
        total = sum(share for share, _ in times)
        return [sum(share * seconds[index] for share, seconds in times) / total for index in range(len(variants))]


def _size(picks: Picks) -> int:
    """The number of variants that are measured for picks, candidate 0 beside those of each task included."""
    return sum(len(names) + 1 for names in picks.values())


def _ok(known: Mapping[str, Measurement]) -> dict[str, float]:
    """Seconds of variants that work, by descriptor."""
    return {name: measurement.time for name, measurement in known.items() if measurement.status is Status.OK}


def _contenders(case: BenchmarkCase, known: Mapping[str, Measurement]) -> list[str]:
    """The fastest so far of each format class."""
    times = _ok(known)
    classes = {
        variant.descriptor: variant.described.format_class for variant in case.variants if variant.descriptor in times
    }
    alike = [[name for name, own in classes.items() if own == one] for one in dict.fromkeys(classes.values())]
    return [min(names, key=times.__getitem__) for names in alike]


def _samples_in(known: Measured) -> list[Sample]:
    return [
        sample
        for measurements in known.values()
        for measurement in measurements.values()
        if (sample := Sample.of(measurement)) is not None
    ]


def _times(known: Measured) -> dict[str, dict[str, float | None]]:
    return {
        key: {
            name: measurement.time if measurement.status is Status.OK else None
            for name, measurement in measurements.items()
        }
        for key, measurements in known.items()
    }
