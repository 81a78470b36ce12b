"""Tables of a zoo network from a tuning database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.selection.extract import NotTunedError, extract
from benchmarks.zoo import write
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.costing.layer_costs import make_tuner
from sartor.frontend.loading import import_network
from sartor.progress import silent
from sartor.tuning.cost_tables.tables import tuned_cases
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.store.store import Store
from sartor.tuning.workers.pool import WorkerPool


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(1) as pool:
        yield pool


def _fill(store: Store, pool: WorkerPool, config: CompileConfig, path: Path) -> None:
    """A microsecond for candidate 0 of each task, two for the next, and so on."""
    imported = import_network(path, config.importing, pool, silent)
    tuner = make_tuner(store, pool, config.target, silent)
    for case in tuned_cases(imported.graph, find_candidates(imported, config.planning).variants):
        for index, variant in enumerate(case.variants):
            key = tuner.key(case, variant.descriptor)
            store.put(Measurement(key, Status.OK, (1e-6 * (index + 1),)))


def test_a_tuned_network_has_tables(pool: WorkerPool, tmp_path: Path) -> None:
    config = CompileConfig(threads=1)
    with Store.in_memory() as store:
        _fill(store, pool, config, write("lenet5", tmp_path))
        tables = extract("lenet5", store, pool, config)
    assert (tables.network, tables.threads, tables.measured_adapts) == ("lenet5", 1, 0)
    assert tables.tasks.keys() <= {node.name for node in tables.problem.nodes}
    for node in tables.problem.nodes:
        if node.name in tables.tasks:
            assert node.choices[0].cost.latency == pytest.approx(1e-6)
            assert tables.tasks[node.name].variants[0].descriptor == node.choices[0].name


def test_a_network_that_was_not_tuned_is_said_to_be(pool: WorkerPool) -> None:
    with Store.in_memory() as store, pytest.raises(NotTunedError, match=r"'lenet5'.*tune the network"):
        extract("lenet5", store, pool, CompileConfig(threads=1))
