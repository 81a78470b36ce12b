"""What the analytic shortlist of tile sizes loses against the whole space, layer by layer.

    python -m benchmarks.tile_space resnet50 mobilenet_v2 -o build/tile_space
    python -m benchmarks.tile_space --layers 2 --ragged 2 --width 4 --width 8 --width 32 --record

The kernels' routines list about a dozen parameter sets for a layer. Here sets are drawn at random from all that a
routine accepts: any number of rows, columns and vectors in a register tile that its registers can hold, any number of
workgroups and of steps that are written out, whether they divide the layer's extents or not. Then the best ones found
are changed, one number at a time. With ``--width`` all of that is done for vectors and blocks of channels of other
widths too, which divide numbers of channels that the CPU's own vectors do not. All run beside those of the shortlist,
and results are checked like any other's. The best ones of each width run three times more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Annotated

import typer

from benchmarks.record.circumstances import circumstances
from benchmarks.record.computed import Cell, Computed
from benchmarks.record.results import RESULTS
from benchmarks.selection.results import markdown, write_csv
from benchmarks.tile_space.audit import Audit, best, of_width
from benchmarks.tile_space.space import Space, is_numbered, width_of
from benchmarks.zoo import write
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.layouts import IMAGE_RANK
from sartor.codegen.mlir.machine import machine_of
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.costing.layer_costs import make_tuner
from sartor.frontend.loading import import_network, open_workspace
from sartor.progress import silent
from sartor.tuning.cost_tables.tables import tuned_cases
from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.store.store import Store

_NAME = "tile_space"
_NETWORKS = ("resnet50", "mobilenet_v2", "squeezenet", "googlenet", "efficientnet_b0", "face_mesh")

app = typer.Typer(help=__doc__)


@dataclass(frozen=True)
class Row:
    """A layer's times in microseconds.

    Attributes:
        network: name.
        layer: the first one with this task.
        routine: of the best variant of the whole space.
        listed: time of the best variant of the shortlist.
        found: time of the best variant of all, timed beside it once more.
        loss: of the shortlist in percent; 0 if it has the best.
        widths: time of the best variant of each other width, as ``8: 12.5``.
        tried: number of variants outside of the shortlist that ran and are right.
        wrong: number of those that gave a wrong result or did not compile.
        parameters: of the best variant of the whole space, where it is not in the shortlist.
    """

    network: str
    layer: str
    routine: str
    listed: float
    found: float
    loss: float
    widths: str
    tried: int
    wrong: int
    parameters: str


@dataclass(frozen=True)
class Extent:
    """How much is audited.

    Attributes:
        layers: number of layers of each network.
        samples: variants of each routine that are drawn, and in each round.
        rounds: how often the best ones are changed.
        widths: of vectors, beside the CPU's own.
        ragged: number of further layers, of which an image's channels do not divide into vectors.
    """

    layers: int = 6
    samples: int = 12
    rounds: int = 2
    widths: tuple[int, ...] = ()
    ragged: int = 0


def row_of(
    network: str, layer: str, listed: BenchmarkCase, wide: BenchmarkCase, known: Mapping[str, Measurement]
) -> Row:
    """What the audit of one layer found."""
    (first, *_), (fastest, *_) = best(listed.variants, known), best(wide.variants, known)
    names = {variant.descriptor for variant in listed.variants}
    others = [variant.descriptor for variant in wide.variants if variant.descriptor not in names]
    failed = sum(other in known and known[other].status is not Status.OK for other in others)
    times = known[first.descriptor].time * 1e6, known[fastest.descriptor].time * 1e6
    shown = "" if fastest.descriptor in names else " ".join(f"{name}={value}" for name, value in fastest.parameters)
    loss = 100 * (times[0] / times[1] - 1)
    widths = _by_width(wide, known)
    return Row(network, layer, fastest.routine, *times, loss, widths, len(others) - failed, failed, shown)


def _by_width(wide: BenchmarkCase, known: Mapping[str, Measurement]) -> str:
    widths = sorted({lanes for variant in wide.variants if (lanes := width_of(variant)) is not None})
    found = {lanes: best(of_width(wide.variants, lanes), known) for lanes in widths}
    return ", ".join(f"{lanes}: {known[each[0].descriptor].time * 1e6:.3g}" for lanes, each in found.items() if each)


def is_ragged(task: Task, lanes: int) -> bool:
    """Whether an image among a layer's activations and results has channels that do not divide into vectors."""
    images = [each for each in (*task.inputs, *task.results) if len(each.shape) == IMAGE_RANK]
    return any(image.shape[1] % lanes for image in images)


def audited(network: str, config: CompileConfig, seed: int, extent: Extent) -> Iterator[Row]:
    """Audit layers of a network that are drawn with a seed.

    Raises:
        SartorError: if the network cannot be imported.
    """
    rng = Random(f"{network} {seed}")
    lanes = machine_of(config.target).lanes
    with (
        open_workspace(config.target, config.jobs) as (pool, work),
        Store.in_memory() as store,
    ):
        imported = import_network(write(network, work), config.importing, pool, silent, work)
        variants = find_candidates(imported, config.planning, everything=False).variants
        tasks = imported.graph.tasks()
        cases = [
            tuned_case
            for tuned_case in tuned_cases(imported.graph, variants)
            if any(map(is_numbered, tuned_case.variants))
        ]
        names = {layer.task.key: layer.name for layer in reversed(tuple(imported.graph.all_layers()))}
        audit = Audit(make_tuner(store, pool, config.target, silent, work), rng, extent.samples, extent.rounds)
        chosen = rng.sample(cases, min(extent.layers, len(cases)))
        ragged = [each for each in cases if each not in chosen and is_ragged(tasks[each.key], lanes)]
        for case in (*chosen, *rng.sample(ragged, min(extent.ragged, len(ragged)))):
            widths = tuple(width for width in extent.widths if width != lanes)
            wide, known = audit.run(Space(tasks[case.key], config.target, widths), case)
            if best(case.variants, known):
                yield row_of(network, names[case.key], case, wide, known)


def summary(rows: Sequence[Row]) -> tuple[tuple[str, ...], tuple[tuple[Cell, ...], ...]]:
    """Headings and rows of what the document shows."""
    columns = ("network", "layer", "shortlist, µs", "whole space, µs", "loss, %", "other widths, µs", "best")
    shown: list[tuple[Cell, ...]] = [
        (
            *(row.network, row.layer, row.listed, row.found, round(row.loss, 1), row.widths),
            f"`{row.routine}` {row.parameters}".strip(),
        )
        for row in rows
    ]
    losses = [row.loss for row in rows]
    tried = sum(row.tried for row in rows)
    last = ("median", f"{len(rows)} layers, {tried} sets", None, None, round(median(losses), 1), None, None)
    return columns, (*shown, last)


@app.command()
def main(
    networks: Annotated[list[str] | None, typer.Argument(help="Zoo networks.")] = None,
    layers: Annotated[int, typer.Option(help="Layers of each network.")] = Extent.layers,
    samples: Annotated[int, typer.Option(help="Variants of each routine that are drawn, and in each round.")] = 12,
    rounds: Annotated[int, typer.Option(help="How often the best ones are changed.")] = Extent.rounds,
    width: Annotated[list[int] | None, typer.Option(help="Elements of vectors to try too; repeatable.")] = None,
    ragged: Annotated[int, typer.Option(help="Further layers, with channels that do not divide into vectors.")] = 0,
    threads: Annotated[int, typer.Option(help="Threads of kernels.")] = 1,
    seed: Annotated[int, typer.Option(help="Of layers and variants.")] = 0,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the table.")] = Path("build/tile_space"),
    recorded: Annotated[bool, typer.Option("--record", help="Record what the document shows.")] = False,
) -> None:
    """Audit layers, and print and write the table."""
    output.mkdir(parents=True, exist_ok=True)
    now = circumstances(Path.cwd(), f"benchmarks.{_NAME}") if recorded else None
    rows: list[Row] = []
    for network in networks or _NETWORKS:
        config = CompileConfig(threads=threads)
        extent = Extent(layers, samples, rounds, tuple(width or ()), ragged)
        for row in audited(network, config, seed, extent):
            rows.append(row)
            print(row, flush=True)
    print(f"\n{markdown(rows)}\n\n{write_csv(rows, output / 'tile_space.csv')}")
    if now is not None:
        columns, shown = summary(rows)
        print(Computed(_NAME.replace("_", "-"), now, "variants timed beside each other", columns, shown).save(RESULTS))


if __name__ == "__main__":
    app()
