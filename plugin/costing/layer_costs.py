"""Cost tables of a model's layers: what is measured, within which limits, and what is predicted instead."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

from sartor.config import DEFAULT_MAX_ERROR, CompileConfig, Search
from sartor.dialect_passes.annotate import Candidates
from sartor.frontend.imported_model import Front
from sartor.progress import Progress
from sartor.tuning.cost_tables.tables import Tables, tuned_units
from sartor.tuning.measuring.benchmark_case import Unit
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
    arbiter: Callable[[Unit], Arbiter | None] = lambda _: None,
) -> Tuner:
    """The tuner for this target, with limits that suit its speed; what follows ``progress`` is as for ``Tuner``."""
    slow = config.target.device == "vulkan"
    measure = MeasureSettings(
        device=config.target.device,
        threads=config.threads,
        # What is measured serves later compilations too, which may allow more than this one.
        max_error=max(config.error_budget.allowed_relative, DEFAULT_MAX_ERROR),
        rounds=3 if slow else 12,
        seconds=4.0 if slow else 1.0,
    )
    settings = TuneSettings(config.target, measure, 120.0, 300.0 if slow else 60.0, deadline)
    return Tuner(store, pool, settings, progress, directory, arbiter)


def tune(front: Front, candidates: Candidates, tuner: Tuner, config: CompileConfig) -> Tables:
    """Cost tables of all tasks, and the machine's peak, which says how good they are."""
    variants = shortlist(front.graph, candidates.variants, config.pins)
    peak = peak_operations(config.target, config.threads) if config.target.device == "cpu" else None
    ceilings = tuner.measure([peak.unit] if peak else [])
    measured = _measured(front, tuned_units(front.graph, variants), tuner, config)
    per_second = peak.per_second(ceilings) if peak else None
    return Tables(variants, {**ceilings, **measured}, peak=per_second)


def _measured(front: Front, units: list[Unit], tuner: Tuner, config: CompileConfig) -> Measured:
    """All variants or those that are worth it; predictions for tasks that there was no time for.

    What is pinned must be known, and what takes little memory is not what the search looks for.
    """
    layers = tuple(front.graph.all_layers())
    search = SearchRun(tuner, units, Counter(layer.task.key for layer in layers))
    if config.search is Search.FULL or config.target.device != "cpu" or config.quantities != (Quantity.LATENCY,):
        measured = tuner.measure(units)
    else:
        pinned = {each.task.key for each in layers if any(fnmatchcase(each.name, pin.layers) for pin in config.pins)}
        tuner.measure(unit for unit in units if unit.key in pinned)
        measured = search.measured()
    guessed = {} if config.time_budget is None else search.guessed(measured)
    if guessed:
        message = "the time budget was spent before %d of %d kinds of layers were measured: their routines are guesses"
        _LOG.warning(message, len(guessed), len(units))
    return {key: {**found, **guessed.get(key, {})} for key, found in measured.items()}
