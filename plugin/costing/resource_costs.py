"""Costs of variants other than time: scratch memory, and the first read of their weights from the file.

Each is measured only if the objective, a limit or the Pareto front counts it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from sartor.codegen.ir.target import Target
from sartor.codegen.linking.scratch import scratch_of
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.measuring.runs.cold_read import cold_read_bandwidth
from sartor.tuning.selection.problem.limits import Quantity
from sartor.tuning.store.store import Store
from sartor.tuning.workers.calls import call
from sartor.tuning.workers.pool import WorkerPool

_LOG = logging.getLogger(__name__)
_TIMEOUT = 300.0


def measure_resource_costs(
    tables: Tables, store: Store, pool: WorkerPool, folder: Path, target: Target, quantities: Collection[Quantity]
) -> Tables:
    """Add to the cost tables what some quantities are computed from: scratch memory and the bandwidth of first reads.

    Args:
        tables: measured times.
        store: keeps the bandwidth of this machine.
        pool: workers.
        folder: for a temporary file, whose first read is timed.
        target: of the compilation.
        quantities: those that are minimised or limited.

    Raises:
        CompileError: if a worker dies.
    """
    if Quantity.MEMORY in quantities:
        tables = _with_scratch(tables, pool, target)
    if Quantity.COLD in quantities:
        tables = replace(tables, loading=cold_read_bandwidth(store, folder))
        if tables.loading is None:
            _LOG.warning("this system cannot drop files from the page cache: the first inference counts like any other")
    return tables


def _with_scratch(tables: Tables, pool: WorkerPool, target: Target) -> Tables:
    usable = {(key, variant.descriptor): variant for key in tables.variants for variant, _ in tables.usable(key)}
    code = {number: variant.implementation for number, variant in enumerate(usable.values())}
    job = {"implementations": code, "target": target}
    scratch = call(pool, scratch_of, job, "finding out what routines need of memory", _TIMEOUT)
    return replace(tables, scratch={name: scratch[number] for number, name in enumerate(usable)})
