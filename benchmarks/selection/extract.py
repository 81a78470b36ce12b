"""Extracts tables of zoo networks from a tuning database, without measuring."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.selection.network_tables import NetworkTables, TaskTimes, TimedVariant
from benchmarks.zoo import write
from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.target import Target
from sartor.codegen.linking.adapts import AdaptKind
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.costing.layer_costs import make_tuner
from sartor.errors import UsageError
from sartor.frontend.loading import import_network
from sartor.progress import silent
from sartor.tuning.cost_tables.problem_builder import selection_problem
from sartor.tuning.cost_tables.tables import Tables, tuned_cases
from sartor.tuning.measuring.benchmark_case import adapt_case
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.records.hardware import host
from sartor.tuning.records.measurement import Status, runtime_key
from sartor.tuning.search.shortlist import shortlist
from sartor.tuning.selection.problem.problem import Edge, Problem
from sartor.tuning.store.store import Store
from sartor.tuning.workers.pool import WorkerPool


class NotTunedError(UsageError):
    """The database lacks tasks of a network."""


def extract(network: str, store: Store, pool: WorkerPool, config: CompileConfig) -> NetworkTables:
    """A network's tables from the store.

    A conversion that was not measured is estimated from measured ones: the tuner measures only conversions of good
    plans and underestimates others, which would favour bad solvers.

    Raises:
        NotTunedError: if a task of the network has no measured candidate 0.
        SartorError: if the network cannot be imported.
    """
    with tempfile.TemporaryDirectory(prefix="sartor-") as directory:
        imported = import_network(write(network, Path(directory)), config.importing, pool, silent)
    tuner = make_tuner(store, pool, config.target, silent)
    variants = shortlist(imported.graph, find_candidates(imported, config.planning).variants, ())
    tables = Tables(variants, tuner.known(tuned_cases(imported.graph, variants)))
    _check(network, imported.graph, tables)
    kinds = _kinds(imported.graph, tables, config)
    measured = _measured_adapts(kinds.values(), tuner, config.target)
    adapts = {**estimated_adapts(kinds.values(), measured), **measured}
    tables = replace(tables, adapts=adapts)
    return NetworkTables(
        network=network,
        machine=host().key,
        runtime=runtime_key(),
        threads=config.threads,
        problem=selection_problem(imported.graph, tables, config.target.device, config.objective),
        tasks={layer.name: _task_times(layer.task.key, imported.graph, tables) for layer in imported.graph.layers},
        measured_adapts=len(measured),
        estimated_adapts=len(adapts) - len(measured),
    )


def estimated_adapts(kinds: Iterable[AdaptKind], measured: Mapping[AdaptKind, float]) -> dict[AdaptKind, float]:
    """Seconds of conversions that were not measured, by their bytes and the median speed of measured ones.

    The median is over conversions between the same two schemas, if there are any.
    """
    speeds: dict[tuple[Schema, Schema] | None, list[float]] = defaultdict(list)
    for kind, seconds in measured.items():
        for group in (None, (kind.source, kind.target)):
            speeds[group].append(kind.logical.bytes / seconds)
    estimates = {}
    for kind in kinds:
        known = speeds.get((kind.source, kind.target)) or speeds.get(None)
        if kind not in measured and known:
            estimates[kind] = kind.logical.bytes / median(known)
    return estimates


def _check(network: str, graph: LayerGraph, tables: Tables) -> None:
    tasks = {case.key for case in tuned_cases(graph, tables.variants)}
    missing = [key for key in tasks if tables.seconds(key, tables.variants[key][0].descriptor) is None]
    if missing:
        raise NotTunedError(
            f"network '{network}': candidate 0 of {len(missing)} of its {len(tasks)} tasks is not in the database "
            "or does not work; tune the network with this version first"
        )


def _task_times(key: str, graph: LayerGraph, tables: Tables) -> TaskTimes:
    times = ((variant.descriptor, tables.seconds(key, variant.descriptor)) for variant in tables.variants[key])
    return TaskTimes(graph.tasks()[key], tuple(TimedVariant(name, time) for name, time in times if time is not None))


def _kinds(graph: LayerGraph, tables: Tables, config: CompileConfig) -> dict[tuple[Edge, Schema, Schema], AdaptKind]:
    """All conversions that a plan may need, without those that move nothing."""
    problem = selection_problem(graph, tables, config.target.device, config.objective)
    types = dict(_types(graph, problem))
    kinds = {
        (edge, produced, needed): AdaptKind(types[edge.producer], produced, needed)
        for edge, produced, needed in problem.adapts
    }
    return {place: kind for place, kind in kinds.items() if not kind.is_free}


def _types(graph: LayerGraph, problem: Problem) -> Iterator[tuple[str, str]]:
    """The type that each layer or input of the network writes, by name."""
    for node, value in zip(problem.nodes, graph.inputs, strict=False):
        yield node.name, str(value.type)
    for layer in graph.layers:
        yield layer.name, str(layer.task.results[0])


def _measured_adapts(kinds: Iterable[AdaptKind], tuner: Tuner, target: Target) -> dict[AdaptKind, float]:
    cases = {kind: adapt_case(kind) for kind in sorted(set(kinds))}
    known = tuner.known(cases.values())
    found = {kind: known[case.key].get(case.variants[0].descriptor) for kind, case in cases.items()}
    return {kind: each.time for kind, each in found.items() if each is not None and each.status is Status.OK}
