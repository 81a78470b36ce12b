"""Audits a layer: draws variants from the whole space, changes the best ones, and times what decides once more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from benchmarks.tile_space.draws import changed, drawn
from benchmarks.tile_space.space import Space, width_of
from sartor.codegen.ir.variants.routine import Variant
from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.records.measurement import Measurement, Status

_ATTEMPTS = 40
_DECIDING = 3


@dataclass(frozen=True)
class Audit:
    """Audits tasks.

    Attributes:
        tuner: measures.
        rng: draws.
        samples: number of variants that are drawn for each routine.
        rounds: how often the best ones are changed.
    """

    tuner: Tuner
    rng: Random
    samples: int
    rounds: int

    def run(self, space: Space, case: BenchmarkCase) -> tuple[BenchmarkCase, dict[str, Measurement]]:
        """The case with all that was tried, and its measurements.

        Args:
            space: of the layer.
            case: the shortlist.
        """
        wide = self._with_drawn(space, case)
        known = self.tuner.measure([wide])[case.key]
        for _ in range(self.rounds):
            further = [each for each in self._changed(space, wide, known) if each.descriptor not in known]
            if not further:
                break
            beside = best(wide.variants, known)
            self.tuner.measure_anew([replace(case, variants=(case.variants[0], *beside, *further))])
            wide = replace(wide, variants=(*wide.variants, *further))
            known = self.tuner.known([wide])[case.key]
        failed = {name: each for name, each in known.items() if each.status is not Status.OK}
        return wide, failed | self._decided(replace(case, variants=_deciding(case, wide, known)))

    def _decided(self, case: BenchmarkCase) -> dict[str, Measurement]:
        """Medians of several runs beside each other, because of many noisy times the least is luck."""
        runs = []
        for _ in range(_DECIDING):
            self.tuner.measure_anew([case])
            runs.append(self.tuner.known([case])[case.key])
        failed = {name: one for run in runs for name, one in run.items() if one.status is not Status.OK}
        right = [name for name in runs[0] if name not in failed]
        return failed | {name: sorted((run[name] for run in runs), key=_seconds)[_DECIDING // 2] for name in right}

    def _with_drawn(self, space: Space, case: BenchmarkCase) -> BenchmarkCase:
        """The case with what is listed for other widths, and with draws for all routines."""
        start = replace(case, variants=(*case.variants, *space.of_other_widths()))
        found: dict[str, Variant] = {}
        known = {variant.descriptor for variant in start.variants}
        for routine, listed in space.kernels(start.variants):
            makes = space.maker(routine)
            for _ in range(self.samples * _ATTEMPTS):
                if sum(each.routine == routine.name for each in found.values()) == self.samples:
                    break
                made = makes(drawn(self.rng, listed))
                if made is not None and made.descriptor not in known:
                    found[made.descriptor] = made
        return replace(start, variants=(*start.variants, *found.values()))

    def _changed(self, space: Space, wide: BenchmarkCase, known: Mapping[str, Measurement]) -> Iterator[Variant]:
        chosen = best(wide.variants, known)
        for routine, listed in space.kernels(wide.variants):
            makes = space.maker(routine)
            for each in chosen:
                if each.routine == routine.name:
                    given = {name: value for name, value in each.parameters if isinstance(value, int)}
                    made = [makes(changed(self.rng, given, listed)) for _ in range(self.samples)]
                    yield from {one.descriptor: one for one in made if one is not None}.values()


def best(variants: Sequence[Variant], known: Mapping[str, Measurement]) -> list[Variant]:
    """The two fastest of the variants that are right."""
    right = [
        variant for variant in variants if variant.descriptor in known and known[variant.descriptor].status is Status.OK
    ]
    return sorted(right, key=lambda each: known[each.descriptor].time)[:2]


def of_width(variants: Sequence[Variant], lanes: int | None) -> list[Variant]:
    """The variants with vectors of a width; None for the CPU's own."""
    return [variant for variant in variants if width_of(variant) == lanes]


def _deciding(case: BenchmarkCase, wide: BenchmarkCase, known: Mapping[str, Measurement]) -> tuple[Variant, ...]:
    """Candidate 0, and the best variants of the shortlist, of each width, and of all."""
    widths = dict.fromkeys(map(width_of, wide.variants))
    each_best = [best(of_width(wide.variants, lanes), known) for lanes in widths]
    chosen = [case.variants[0], *best(case.variants, known), *(one for two in each_best for one in two)]
    return tuple(dict.fromkeys(chosen))


def _seconds(measurement: Measurement) -> float:
    return measurement.time
