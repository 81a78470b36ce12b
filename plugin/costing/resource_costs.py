"""Costs of variants other than time: scratch memory, the first read of their weights, and their first execution.

Each is measured only if the objective, a limit or the Pareto front counts it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Variant
from sartor.codegen.linking.scratch import scratch_of
from sartor.frontend.imported_model import ImportedModel
from sartor.tuning.cost_tables.tables import Tables, tuned_cases
from sartor.tuning.measuring.first_runs import first_runs
from sartor.tuning.measuring.runs.cold_read import cold_read_bandwidth
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.records.measurement import Measurement
from sartor.tuning.selection.problem.limits import Quantity
from sartor.tuning.store.store import Store
from sartor.tuning.workers.calls import call
from sartor.tuning.workers.pool import WorkerPool

_LOG = logging.getLogger(__name__)
_TIMEOUT = 300.0
# Slower variants, relative to the fastest of a layer, are chosen only if they read much less.
_NEAR = 1.5
_MOST_STARTED = 8


def measure_resource_costs(
    tables: Tables,
    graph: LayerGraph,
    store: Store,
    pool: WorkerPool,
    folder: Path,
    target: Target,
    quantities: Collection[Quantity],
) -> Tables:
    """Add to the cost tables what some quantities are computed from: scratch memory and the bandwidth of first reads.

    Args:
        tables: measured times.
        graph: the layers, and those that may be fused.
        store: keeps the bandwidth of this machine.
        pool: workers.
        folder: for a temporary file, whose first read is timed.
        target: of the compilation.
        quantities: those that are minimised or limited.

    Raises:
        CompileError: if a worker dies.
    """
    if Quantity.MEMORY in quantities:
        tables = _with_scratch(tables, graph, pool, target)
    if Quantity.COLD in quantities:
        tables = replace(tables, loading=cold_read_bandwidth(store, folder))
        if tables.loading is None:
            _LOG.warning("this system cannot drop files from the page cache: the first inference counts like any other")
    return tables


def _with_scratch(tables: Tables, graph: LayerGraph, pool: WorkerPool, target: Target) -> Tables:
    usable = {(key, variant.descriptor): variant for key in tables.variants for variant, _ in tables.usable(key)}
    tasks = graph.tasks()
    code = {
        number: _largest(variant.implementation, tasks[key])
        for number, ((key, _), variant) in enumerate(usable.items())
    }
    job = {"implementations": code, "target": target}
    scratch = call(pool, scratch_of, job, "finding out what routines need of memory", _TIMEOUT)
    return replace(tables, scratch={name: scratch[number] for number, name in enumerate(usable)})


def _largest(code: Implementation, task: Task) -> Implementation:
    """The code for the largest sizes, of what is lowered for any: the memory of intermediate tensors is that of their
    numbers. A kernel's workspace is known as it is."""
    if code.kernel is not None or not code.symbols:
        return code
    return replace(code, body=task.body, symbols=())


def measure_starts(
    tables: Tables, imported: ImportedModel, tuner: Tuner, pool: WorkerPool, quantities: Collection[Quantity]
) -> Tables:
    """Add to the cost tables what variants take longer in their first execution, if the first inference counts.

    Those are measured that a plan for the first inference may choose: nearly the fastest of a layer, and those that no
    other beats in time and in bytes to read. A variant that was not measured counts as the dearest of its layer.

    Args:
        tables: measured times.
        imported: the model.
        tuner: measured them.
        pool: workers.
        quantities: those that are minimised or limited.
    """
    if Quantity.COLD not in quantities or not tuner.target.is_cpu or pool.measures_elsewhere:
        return tables
    # Of several devices the tuner is the CPU's, on which what others run says nothing.
    promising = {key: _promising(tables, key, tuner.target.device) for key in tables.variants}
    cases = [case for case in tuned_cases(imported.graph, promising) if case.variants]
    runs = first_runs(cases, tuner, pool)
    dearest: dict[str, float] = {}
    for (key, _), seconds in runs.items():
        dearest[key] = max(dearest.get(key, 0.0), seconds)
    starting = {
        (key, variant.descriptor): runs.get((key, variant.descriptor), dearest.get(key, 0.0))
        for key in tables.variants
        for variant, _ in tables.usable(key)
        if variant.device == tuner.target.device
    }
    return replace(tables, starting=starting)


def _promising(tables: Tables, key: str, device: str) -> tuple[Variant, ...]:
    """Variants of a task on a device that a plan for the first inference may choose, the fastest first."""
    usable = [(variant, measurement) for variant, measurement in tables.usable(key) if variant.device == device]
    timed = [(tables.seconds(key, variant.descriptor) or 0.0, variant, measurement) for variant, measurement in usable]
    timed.sort(key=lambda entry: entry[0])
    least = [
        entry for index, entry in enumerate(timed) if _reads_least(entry[2], [earlier[2] for earlier in timed[:index]])
    ]
    near = [entry for entry in timed if entry[0] <= _NEAR * timed[0][0] and entry not in least]
    return tuple(variant for _, variant, _ in sorted([*least, *near[:_MOST_STARTED]], key=lambda entry: entry[0]))


def _reads_least(slower: Measurement, faster: Sequence[Measurement]) -> bool:
    return all(slower.packed_bytes < measurement.packed_bytes for measurement in faster)
