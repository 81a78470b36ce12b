"""Cost tables of a model's layers: measured times, and predictions where there was no time to measure."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from pathlib import Path

from sartor.codegen.analysis.task_bounds import ideal_seconds
from sartor.codegen.ir.machines.core import WIDE, Core
from sartor.codegen.ir.packing import Packing
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.candidates import Candidates
from sartor.codegen.ir.variants.routine import Variant
from sartor.codegen.ir.variants.traits import DescribedVariant
from sartor.codegen.mlir.kernel_machine import core_of
from sartor.costing.candidates import measured_candidates
from sartor.costing.filters.followed_forms import unmeasured_forms
from sartor.frontend.imported_model import ImportedModel
from sartor.policies import DEFAULT_MAX_ERROR, PlanPolicy, Search
from sartor.progress import Progress, tell_found
from sartor.tuning.cost_tables.roofline import peak_operations
from sartor.tuning.cost_tables.tables import Tables, tuned_cases
from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.measuring.checking import Arbiter
from sartor.tuning.measuring.measure_job import MeasureSettings
from sartor.tuning.measuring.tuner import Tuner, TuneSettings
from sartor.tuning.records.hardware import host
from sartor.tuning.records.isa_level import isa_class
from sartor.tuning.records.measurement import Measurement, key_threads
from sartor.tuning.search.cost_model import FEWEST_SAMPLES, Sample, load_ahead
from sartor.tuning.search.doubts.contested import contested
from sartor.tuning.search.features import analytic_seconds
from sartor.tuning.search.found_so_far import FoundSoFar
from sartor.tuning.search.search_run import Measured, SearchRun
from sartor.tuning.search.search_settings import SearchSettings, settings_for
from sartor.tuning.search.shipped.foreseen import Foreseen
from sartor.tuning.search.shipped.likeness import is_covered, kin_in, shipped_guide
from sartor.tuning.search.shipped.times import shipped_samples
from sartor.tuning.selection.problem.limits import Quantity
from sartor.tuning.selection.problem.pin import Pin
from sartor.tuning.store.store import Store
from sartor.tuning.transfers.times import Transfers
from sartor.tuning.workers.beside.stopping import current
from sartor.tuning.workers.pool import WorkerPool

_LOG = logging.getLogger(__name__)
_ROUNDS_OF_SIZES = 1
DEFAULT_UNTIL = 0.01
"""Of the network's time: tuning ends when what is left promises to save less (docs/records/tuning.md)."""


def make_tuner(
    store: Store,
    pool: WorkerPool,
    target: Target,
    progress: Progress,
    directory: Path | None = None,
    deadline: float | None = None,
    arbiter: Callable[[BenchmarkCase], Arbiter | None] = lambda _: None,
    allowed: float = DEFAULT_MAX_ERROR,
) -> Tuner:
    """The tuner for a target, with time limits that suit it; see ``Tuner`` for the arguments.

    What is measured serves later compilations too, which may allow a larger relative error than this one allows.
    """
    slow = target.is_software
    measure = MeasureSettings(
        device=target.device,
        threads=target.threads,
        max_error=max(allowed, DEFAULT_MAX_ERROR),
        rounds=3 if slow else 12,
        seconds=4.0 if slow else 1.0,
    )
    settings = TuneSettings(target, measure, 120.0, 300.0 if slow else 60.0, deadline)
    return Tuner(store, pool, settings, progress, directory, arbiter)


def tune(
    imported: ImportedModel,
    candidates: Candidates,
    tuner: Tuner,
    policy: PlanPolicy,
    search: Search = Search.MODEL,
    until: float | None = 0.0,
    *,
    forms: Mapping[str, Packing] | None = None,
    predicts: bool = False,
) -> Tables:
    """Measure the candidates of a tuner's device, or what a search selects of them; returns cost tables of all tasks.

    A search ends when what is left promises less than the fraction ``until`` of the network's time; with None that is
    ``DEFAULT_UNTIL`` without a deadline, where the package holds times of such a CPU, and else 0. Where these are not
    of nearly all variants, some of each task are measured first. That routines are guesses is told, unless nothing was
    to be measured, as a plan ``predicts`` all that is not known.

    Of layers that may read weights in ``forms``, by the names of weights, some variant that does is measured, too. The
    machine's peak is in the tables for comparison.
    """
    target = tuner.target
    variants = measured_candidates(candidates, imported, target, policy, search).variants
    peak = peak_operations(target, target.threads) if target.is_cpu else None
    limits = [peak.case] if peak else []
    # The first measurement waits for what began before, so without a deadline variants are compiled until then.
    early = tuner.measure(limits) if tuner.is_bounded else {}
    searches = search is Search.MODEL and not target.is_software and policy.quantities == (Quantity.LATENCY,)
    pins = policy.pins if searches else None
    cases = tuned_cases(imported.graph, variants)
    measured = _measured(imported, cases, tuner, pins, until, limits, predicts=predicts)
    if forms and not tuner.is_late:
        known = {key: {*listed} for key, listed in measured.items()}
        following = tuner.measure(unmeasured_forms(cases, known, imported.graph, forms))
        measured |= {key: {**measured[key], **listed} for key, listed in following.items()}
    rooflines = early or tuner.measure(limits)
    per_second = peak.per_second(rooflines) if peak else None
    own, calls = candidates.of_device(target.device).variants, imported.graph.calls
    return Tables(own, {**rooflines, **measured}, peak=per_second, calls=calls)


def unmeasured(tables: Tables, store: Store) -> int:
    """The number of kinds of layers of which the tables contain guesses, as no variant was measured."""
    measured_tables = (tables.measured.get(key, {}).values() for key in tables.variants)
    return sum(
        bool(listed) and all(store.get(measurement.key) is None for measurement in listed) for listed in measured_tables
    )


def joined_tables(tables: Sequence[Tables], transfers: Transfers) -> Tables:
    """The tables of several devices as one, with the times of transfers between them."""
    variants: dict[str, tuple[Variant, ...]] = {}
    measured: dict[str, Mapping[str, Measurement]] = {}
    for table in tables:
        for key, listed in table.variants.items():
            variants[key] = (*variants.get(key, ()), *listed)
        for key, measurements in table.measured.items():
            measured[key] = {**measured.get(key, {}), **measurements}
    return replace(tables[0], variants=variants, measured=measured, transfers=transfers)


def _settled(cases: list[BenchmarkCase], tuner: Tuner, measured: Measured) -> Measured:
    """Measure again what decides between variants and was measured beside other programs, if the machine is quiet."""
    doubted = contested(cases, measured)
    if not doubted or tuner.is_late or not tuner.is_quiet():
        return measured
    message = "%d of %d kinds of layers are measured again: before, other programs took processors meanwhile"
    _LOG.info(message, len(doubted), len(cases))
    tuner.measure_anew(doubted)
    return {**measured, **tuner.known(cases)}


def in_order(cases: Sequence[BenchmarkCase], counts: Mapping[str, int], core: Core) -> list[BenchmarkCase]:
    """Cases by the time that their layers take in a network at least, by the models: the longest first."""

    def share(case: BenchmarkCase) -> float:
        times = [analytic_seconds(case.facts, variant.described, core) for variant in case.variants]
        return counts[case.key] * min(times)

    return sorted(cases, key=lambda case: -share(case))


def first_guesses(cases: Iterable[BenchmarkCase]) -> Iterator[BenchmarkCase]:
    """Each case with candidate 0, and of each routine in each element type the variant that it lists first."""
    for case in cases:
        first = {(variant.routine, variant.dtype): variant for variant in reversed(case.variants)}
        chosen = {case.variants[0].descriptor, *(variant.descriptor for variant in first.values())}
        yield replace(case, variants=tuple(variant for variant in case.variants if variant.descriptor in chosen))


def load_search(
    store: Store,
    target: Target,
    search: Search,
    *,
    predicts: bool = False,
    measures: bool = True,
    until: float | None = 0.0,
) -> None:
    """Begin to load what the search of a CPU's variants needs, if nothing is known that may make it needless.

    Args:
        store: the tuning database.
        target: of the compilation.
        search: which variants are measured.
        predicts: whether a plan is predicted, for which a model is needed in any case.
        measures: whether anything will be measured, from which a model learns.
        until: as for ``tune``. A search that may leave much out mostly ends before a model would learn.
    """
    known = sum(1 for _ in islice(store.measurements(here_only=True), FEWEST_SAMPLES))
    if target.is_cpu and (predicts or (not known and search is Search.MODEL)):
        kind = shipped_kind(store, target)
        learns = measures and (kind is None or until == 0)
        load_ahead(
            partial(shipped_guide, *kind) if kind is not None else _nothing, trains=learns or known == FEWEST_SAMPLES
        )


def foreseen(store: Store, target: Target) -> Foreseen:
    """Of each routine's variants the one that is predicted to be fastest on a CPU, by the package's times if it can."""
    kind = shipped_kind(store, target)
    if kind is None:
        return Foreseen(None, core_of(target))
    return Foreseen(shipped_guide(*kind), core_of(target), kin_in(shipped_samples(*kind)))


def shipped_kind(store: Store, target: Target) -> tuple[str, int] | None:
    """What the package's times are looked up by: the class of the CPU that measures, or the level of it that is
    compiled for, and the number of threads. None where no times are right.
    """
    if not target.is_cpu or target.without or store.hardware != host().key:
        return None
    return isa_class(host()) if target.is_this_cpu else target.architecture, target.threads


def _ending(
    settings: SearchSettings, variants: Sequence[DescribedVariant], shipped: Sequence[Sample], tuner: Tuner
) -> SearchSettings:
    """What a search may leave out by default. A deadline ends it; else predictions do, where the package's times tell.

    Of variants unlike those that a model has seen it is known how far predictions err once some of each task were
    measured.
    """
    if tuner.is_bounded or not shipped:
        return settings
    return replace(settings, until=DEFAULT_UNTIL, whole_rounds=not is_covered(variants, shipped))


def _nothing() -> None:
    """There is no model to load."""


def _measured(
    imported: ImportedModel,
    cases: list[BenchmarkCase],
    tuner: Tuner,
    pins: Sequence[Pin] | None,
    until: float | None = 0.0,
    limits: Sequence[BenchmarkCase] = (),
    *,
    predicts: bool = False,
) -> Measured:
    """Measure all variants, or those that the search selects; tasks that were not reached get predictions.

    Pinned layers are measured in all variants. So are all layers if ``pins`` is None: if more than latency counts, as
    the search minimises latency alone.
    """
    layers = tuple(imported.graph.all_layers())
    counts = Counter(layer.task.key for layer in layers)
    core = core_of(tuner.target) if tuner.target.has_models else WIDE
    bound = {case.key: ideal_seconds(case.facts, core) for case in cases} if core is not WIDE else {}
    so_far = FoundSoFar(cases, Counter(layer.task.key for layer in imported.graph.layers), bound=bound)
    for case, known in zip(cases, tuner.known(cases).values(), strict=True):
        so_far.learn(case, known)
    tuner.listener = so_far.told
    kind = shipped_kind(tuner.store, tuner.target)
    shipped = () if kind is None else shipped_samples(*kind)
    described = [variant.described for case in cases for variant in case.variants[1:]]
    settings = settings_for(described, shipped, key_threads(tuner.target.device, tuner.target.threads))
    settings = _ending(settings, described, shipped, tuner) if until is None else replace(settings, until=until)
    foresees = tuner.is_bounded or settings.until > 0
    guided_by = None if kind is None or (pins is None and not foresees) else shipped_guide(*kind)
    # Each variant of any size is measured with several, which takes as much longer.
    rounds = min(settings.rounds, _ROUNDS_OF_SIZES) if imported.graph.calls else settings.rounds
    settings = replace(settings, rounds=rounds)
    search = SearchRun(tuner, cases, counts, settings, so_far, shipped, guided_by=guided_by, core=core, limits=limits)
    if tuner.is_late:
        measured = tuner.known(cases)
    elif pins is None:
        so_far.expect(sum(len(case.variants) for case in cases))
        if tuner.is_bounded:
            cases = in_order(cases, counts, core)
            tuner.measure(first_guesses(cases))
        measured = tuner.measure(cases)
    else:
        pinned = {layer.task.key for layer in layers if any(fnmatchcase(layer.name, pin.layers) for pin in pins)}
        tuner.measure(case for case in cases if case.key in pinned)
        measured = search.measured()
    tell_found(tuner.progress, "")
    measured = _settled(cases, tuner, measured)
    guessed = search.guessed(measured) if foresees else {}
    if guessed and not predicts and (tuner.is_late or not settings.until):
        ended = "measuring was stopped" if current().is_requested else "the time budget was spent"
        message = "%s before %d of %d kinds of layers were measured: their routines are guesses"
        _LOG.warning(message, ended, len(guessed), len(cases))
    return {key: {**measurements, **guessed.get(key, {})} for key, measurements in measured.items()}
