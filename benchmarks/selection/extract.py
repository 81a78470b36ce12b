"""Tables of zoo networks without measuring: from a tuning database, or estimated."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.estimated_tables import estimated_tables
from benchmarks.selection.network_tables import NetworkTables, TaskTimes, TimedVariant
from benchmarks.zoo import write
from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.target import Target
from sartor.codegen.linking.adapts import AdaptKind
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.costing.filters.shortlist import shortlisted
from sartor.costing.layer_costs import make_tuner
from sartor.errors import UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.loading import import_network
from sartor.progress import silent
from sartor.tuning.cost_tables.problem_builder import selection_problem
from sartor.tuning.cost_tables.tables import Tables, tuned_cases
from sartor.tuning.measuring.benchmark_case import adapt_case
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.records.hardware import host
from sartor.tuning.records.measurement import Status, runtime_key
from sartor.tuning.selection import auto
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem
from sartor.tuning.store.store import Store
from sartor.tuning.workers.pool import WorkerPool

ESTIMATED = "estimated"
"""The machine of tables that were not measured."""

# Bytes of tensors that one thread converts in a second, as measured where tables were
# (docs/records/selection-benchmarks.md).
_CONVERTED_PER_SECOND = 7e9


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
    imported = _imported(network, pool, config)
    tuner = make_tuner(store, pool, config.target, silent)
    variants = shortlisted(find_candidates(imported, config.planning), imported.graph, ()).variants
    tables = Tables(variants, tuner.known(tuned_cases(imported.graph, variants)))
    _check(network, imported.graph, tables)
    kinds = _kinds(imported.graph, tables, config)
    measured = _measured_adapts(kinds.values(), tuner, config.target)
    adapts = {**estimated_adapts(kinds.values(), measured), **measured}
    return _tables(network, imported.graph, replace(tables, adapts=adapts), config, len(measured))


def estimate(network: str, pool: WorkerPool, config: CompileConfig) -> NetworkTables:
    """A network's tables by the routines' analytic models, for experiments that need no particular machine.

    Raises:
        SartorError: if the network cannot be imported.
    """
    imported = _imported(network, pool, config)
    tables = estimated_tables(imported, config.planning)
    kinds = set(_kinds(imported.graph, tables, config).values())
    adapts = {kind: kind.logical.bytes / _CONVERTED_PER_SECOND for kind in kinds}
    found = _tables(network, imported.graph, replace(tables, adapts=adapts), config, 0)
    return replace(found, machine=ESTIMATED)


def _imported(network: str, pool: WorkerPool, config: CompileConfig) -> ImportedModel:
    with tempfile.TemporaryDirectory(prefix="sartor-") as directory:
        return import_network(write(network, Path(directory)), config.importing, pool, silent)


def _tables(network: str, graph: LayerGraph, tables: Tables, config: CompileConfig, measured: int) -> NetworkTables:
    problem = selection_problem(graph, tables, config.target.device, config.objective)
    return NetworkTables(
        network=network,
        machine=host().key,
        runtime=runtime_key(),
        threads=config.threads,
        problem=replace(problem, nodes=tuple(map(_flat, problem.nodes))),
        tasks={layer.name: _task_times(layer.task.key, graph, tables) for layer in graph.layers},
        measured_adapts=measured,
        estimated_adapts=len(tables.adapts) - measured,
    )


def _flat(node: Node) -> Node:
    """The layer with each childnet as a choice that costs what the best plan of the childnet costs."""
    return replace(node, choices=tuple(map(_solved, node.choices)))


def _solved(choice: Choice) -> Choice:
    if choice.childnet is None:
        return choice
    inside = auto.select(choice.childnet).costs
    return replace(choice, cost=choice.cost + inside, childnet=None)


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
