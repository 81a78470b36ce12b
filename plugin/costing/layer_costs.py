"""Cost tables of a model's layers: measured times, and predictions where there was no time to measure."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

from sartor.config import DEFAULT_MAX_ERROR, CompileConfig, Search
from sartor.dialect_passes.annotate import Candidates
from sartor.frontend.imported_model import ImportedModel
from sartor.progress import Progress
from sartor.tuning.cost_tables.tables import Tables, tuned_cases
from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.measuring.checking import Arbiter
from sartor.tuning.measuring.measure_job import MeasureSettings
from sartor.tuning.measuring.roofline import peak_operations
from sartor.tuning.measuring.tuner import Tuner, TuneSettings
from sartor.tuning.search.search_run import Measured, SearchRun
from sartor.tuning.search.shortlist import shortlist
from sartor.tuning.selection.problem.limits import Quantity
from sartor.tuning.store.store import Store
from sartor.tuning.workers.pool import WorkerPool

_LOG = logging.getLogger(__name__)


def make_tuner(
    store: Store,
    pool: WorkerPool,
    config: CompileConfig,
    progress: Progress,
    directory: Path | None = None,
    deadline: float | None = None,
    arbiter: Callable[[BenchmarkCase], Arbiter | None] = lambda _: None,
) -> Tuner:
    """The tuner for the config's target, with time limits that suit it; see ``Tuner`` for the last three arguments."""
    slow = config.target.device == "vulkan"
    measure = MeasureSettings(
        device=config.target.device,
        threads=config.threads,
        # Later compilations use the measurements too, and may allow larger errors than this one.
        max_error=max(config.error_budget.allowed_relative, DEFAULT_MAX_ERROR),
        rounds=3 if slow else 12,
        seconds=4.0 if slow else 1.0,
    )
    settings = TuneSettings(config.target, measure, 120.0, 300.0 if slow else 60.0, deadline)
    return Tuner(store, pool, settings, progress, directory, arbiter)


def tune(imported: ImportedModel, candidates: Candidates, tuner: Tuner, config: CompileConfig) -> Tables:
    """Measure the candidates; returns cost tables of all tasks with the machine's peak, for comparison."""
    variants = shortlist(imported.graph, candidates.variants, config.pins)
    peak = peak_operations(config.target, config.threads) if config.target.device == "cpu" else None
    rooflines = tuner.measure([peak.case] if peak else [])
    measured = _measured(imported, tuned_cases(imported.graph, variants), tuner, config)
    per_second = peak.per_second(rooflines) if peak else None
    return Tables(variants, {**rooflines, **measured}, peak=per_second)


def _measured(imported: ImportedModel, cases: list[BenchmarkCase], tuner: Tuner, config: CompileConfig) -> Measured:
    """Measure all variants, or those that the search selects; tasks that were not reached get predictions.

    Pinned layers are measured in all variants. So are all layers if more than latency counts, as the search minimises
    latency alone.
    """
    layers = tuple(imported.graph.all_layers())
    search = SearchRun(tuner, cases, Counter(layer.task.key for layer in layers))
    if config.search is Search.FULL or config.target.device != "cpu" or config.quantities != (Quantity.LATENCY,):
        measured = tuner.measure(cases)
    else:
        pinned = {each.task.key for each in layers if any(fnmatchcase(each.name, pin.layers) for pin in config.pins)}
        tuner.measure(case for case in cases if case.key in pinned)
        measured = search.measured()
    guessed = {} if config.time_budget is None else search.guessed(measured)
    if guessed:
        message = "the time budget was spent before %d of %d kinds of layers were measured: their routines are guesses"
        _LOG.warning(message, len(guessed), len(cases))
    return {key: {**found, **guessed.get(key, {})} for key, found in measured.items()}
