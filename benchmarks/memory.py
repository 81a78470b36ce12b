"""Compares the memory predicted for plans with what IREE allocates.

    python -m benchmarks.memory squeezenet googlenet -o build/memory    # all networks of the zoo by default

Nothing is measured for it: plans are selected by estimated times, one as fast and one as small as possible, and the
modules that are built from them run once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.estimated_tables import estimated_tables
from benchmarks.selection.results import markdown, write_csv
from benchmarks.zoo import NETWORKS, write
from sartor.codegen.linking.scratch import scratch_of
from sartor.config import CompileConfig
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.loading import import_network, open_workers
from sartor.planning.recipe import Recipe, split_recipe
from sartor.profiling.builder import Builder
from sartor.progress import silent
from sartor.runtime.memory import allocated_bytes
from sartor.tuning.cost_tables.problem_builder import selection_problem
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork, planned_memory
from sartor.tuning.records.signature import net_signature
from sartor.tuning.selection import auto
from sartor.tuning.selection.problem.limits import Quantity, measures
from sartor.tuning.selection.problem.selection import Selection
from sartor.tuning.selection.programming import least_memory
from sartor.tuning.workers.calls import call
from sartor.tuning.workers.pool import WorkerPool

_MIB = 2**20
# Seconds after which the smallest plan that was found is taken.
_SECONDS = 20.0

app = typer.Typer(help=__doc__)


@dataclass(frozen=True)
class Row:
    """A plan of a network. Amounts are in MiB, with inputs and outputs; errors are relative to ``allocated``.

    Attributes:
        network: name.
        plan: which plan.
        weights: packed weights.
        by_tables: all memory, by the tables.
        planned: all memory, as IREE plans it.
        allocated: all memory of a module that ran.
        tables_off: error of the tables in percent.
        planned_off: error of IREE's plan in percent.
        activations_off: error of the tables in percent of the allocated memory without weights.
    """

    network: str
    plan: str
    weights: float
    by_tables: float
    planned: float
    allocated: float
    tables_off: float
    planned_off: float
    activations_off: float


def measure(network: str, pool: WorkerPool, config: CompileConfig, directory: Path) -> Iterator[Row]:
    """Select two plans of a network, predict their memory, and run them.

    Raises:
        SartorError: if the network does not compile.
    """
    imported = import_network(write(network, directory), config.importing, pool, silent, directory)
    plans = _recipes(imported, pool, config)
    for name, recipe in plans.items():
        net = SplitNetwork(recipe.graph, recipe.variants, imported.ranges)
        planned = call(pool, planned_memory, {"net": net, "target": config.target}, "planning memory")
        (built,) = Builder(imported, pool, directory, config.header, silent).build([recipe])
        tables, weights = recipe.needed[Quantity.MEMORY], built.files.weight_bytes
        allocated = _allocated(imported, built.files)
        yield Row(
            *(network, name, weights / _MIB, tables / _MIB, (planned or 0) / _MIB, allocated / _MIB),
            *(100 * (tables / allocated - 1), 100 * ((planned or 0) / allocated - 1)),
            activations_off=100 * ((tables - weights) / (allocated - weights) - 1),
        )


def _recipes(imported: ImportedModel, pool: WorkerPool, config: CompileConfig) -> dict[str, Recipe]:
    policy = config.planning
    tables = estimated_tables(imported, policy, lambda job: call(pool, scratch_of, job, "finding scratch memory"))
    problem = selection_problem(
        imported.graph, tables, config.target.device, policy.objective, quantities=(Quantity.MEMORY,)
    )
    found: Mapping[str, Selection] = {
        "fastest": auto.select(problem),
        "smallest": least_memory.smallest(problem, seconds=_SECONDS),
    }
    return {
        name: Recipe(recipe.plan, recipe.graph, recipe.variants, measures(problem, each.assignment))
        for name, each in found.items()
        for recipe in [split_recipe(imported, tables, each, policy)]
    }


def _allocated(imported: ImportedModel, files: NetFiles) -> int:
    signature = net_signature((imported.graph.inputs, imported.graph.outputs))
    found = allocated_bytes(files.module, imported.samples, signature, files.parameters)
    if found is None:
        raise typer.BadParameter("this build of IREE does not count what it allocates")
    return found.peak + (files.weight_bytes if found.loaded < files.weight_bytes else 0)


@app.command()
def show(
    networks: Annotated[list[str] | None, typer.Argument(help="Zoo networks; all of them by default.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the CSV file.")] = Path("build/memory"),
) -> None:
    """Predict and run every network, and print the table."""
    config = CompileConfig(threads=1, jobs=1)
    rows: list[Row] = []
    with open_workers(config.target, config.jobs) as pool:
        for network in networks or NETWORKS:
            with tempfile.TemporaryDirectory(prefix="sartor-") as directory:
                found = list(measure(network, pool, config, Path(directory)))
            print(markdown(found), flush=True)
            rows += found
            write_csv(rows, output / "memory.csv")
    print(f"\n{markdown(rows)}")


if __name__ == "__main__":
    app()
