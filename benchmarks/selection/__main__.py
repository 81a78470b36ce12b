"""Compares the solvers with the methods of the papers.

    python -m benchmarks.selection tables --db build/compare/tuning.db    # what was measured, as files
    python -m benchmarks.selection all                                    # every experiment on these files
    python -m benchmarks.selection record                                 # and what the documents show of them

An experiment writes NAME.csv and NAME.svg, and prints its figures as a Markdown table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.record.results import RESULTS
from benchmarks.selection import (
    growth,
    layout_run,
    layouts,
    learning,
    sampling,
    sharing,
    solvers,
    transfer,
    worst_cases,
)
from benchmarks.selection.extract import NotTunedError, estimate, extract
from benchmarks.selection.network_tables import load_all, save
from benchmarks.selection.qsdnn import comparison
from benchmarks.selection.recording import COMPARISONS, record
from benchmarks.selection.results import markdown, write_csv
from benchmarks.selection.shipping import extended, joined
from benchmarks.zoo import NETWORKS, write
from sartor.cli.output.terminal import tuning_progress
from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.errors import SartorError, UsageError
from sartor.frontend.loading import open_workers
from sartor.policies import Precision
from sartor.tuning.records.hardware import host
from sartor.tuning.records.isa_level import isa_class
from sartor.tuning.search.cost_model import Sample
from sartor.tuning.search.shipped import times
from sartor.tuning.search.shipped.contributed import shippable
from sartor.tuning.search.shipped.likeness import guide
from sartor.tuning.search.shipped.stored_guide import write_guide
from sartor.tuning.search.shipped.times import shipped_samples, write_samples
from sartor.tuning.store.store import Store

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False)

_Tables = Annotated[Path, typer.Option("--tables", help="Folder with what `tables` wrote.")]
_Output = Annotated[Path, typer.Option("--output", "-o", help="Folder for CSV files and plots.")]
_Level = Annotated[
    str | None, typer.Option("--cpu", help="Level of x86-64 that was compiled for; this CPU's by default.")
]
_TABLES = Path("build/selection/tables")
_ESTIMATED = Path("build/selection/estimated")
_OUTPUT = Path("build/selection")
_FIGURES = Path("docs/figures")
_DATABASE = Path("build/selection/tuning.db")


@app.command()
def tables(
    db: Annotated[Path, typer.Option(help="Tuning database.")],
    networks: Annotated[list[str] | None, typer.Argument(help="Zoo networks; all of them by default.")] = None,
    threads: Annotated[int, typer.Option(help="Thread count that was tuned for.")] = 1,
    cpu: _Level = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the tables.")] = _TABLES,
) -> None:
    """Write the tables of every network whose tasks are in a tuning database, and name the others."""
    config = CompileConfig(target=Target.create("cpu", cpu), threads=threads, jobs=1)
    with open_workers(config.target, config.jobs) as pool, Store.open_to_read(db) as store:
        for network in networks or NETWORKS:
            try:
                found = extract(network, store, pool, config)
            except NotTunedError as error:
                print(f"missing: {error}", flush=True)
                continue
            counts = f"{found.measured_adapts} conversions measured, {found.estimated_adapts} estimated"
            print(f"{save(found, output)}: {len(found.problem.nodes)} layers, {counts}", flush=True)


@app.command("ship")
def ship_times(
    db: Annotated[Path, typer.Option(help="Tuning database of full searches.")],
    threads: Annotated[int, typer.Option(help="Thread count that was tuned for.")] = 1,
    cpu: _Level = None,
    extend: Annotated[bool, typer.Option("--extend", help="Keep the package's times of other tasks.")] = False,
) -> None:
    """Write this machine's times of all variants to the package, for first tunes on machines of its kind."""
    isa = cpu or isa_class(host())
    with Store.open_to_read(db) as store:
        found = shippable(store, Target.create("cpu", cpu), threads)
        written = extended(found, shipped_samples(isa, threads)) if extend else found
        path = write_samples(written, isa, threads)
        print(f"{path}: {len(found)} times of {len(written)} measured now")
        print(_write_trees(path))


@app.command("join")
def join_times(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="What `sartor db contribute` wrote, or a database of full searches.")
    ],
    threads: Annotated[int, typer.Option(help="Thread count that was tuned for.")],
    cpu: Annotated[str, typer.Option("--cpu", help="Class of the machine, as `sartor db contribute` told it.")],
) -> None:
    """Add another machine's times of tasks that the package lacks, or lacks in a type."""
    known = shipped_samples(cpu, threads)
    found = joined(known, _contributed(file, cpu, threads))
    path = write_samples(found, cpu, threads)
    print(f"{path}: {len(found)} times, {len(found) - len(known)} of them new")
    print(_write_trees(path))


def _contributed(file: Path, cpu: str, threads: int) -> Sequence[Sample]:
    """The times of a contribution, or of a database that was filled here."""
    if file.suffix != ".db":
        return times.read(file)
    with Store.open_to_read(file) as store:
        return shippable(store, Target.create("cpu", cpu), threads)


@app.command("trees")
def train_trees() -> None:
    """Train the models of the package's times anew, after features of variants have changed."""
    for path in sorted(Path(times.__file__).parent.glob("*.json.gz")):
        print(_write_trees(path))


def _write_trees(path: Path) -> Path:
    samples = times.read(path)
    model = guide(samples)
    if model is None:
        raise UsageError(f"'{path}' has too few times")
    return write_guide(model, path, samples)


@app.command("estimate")
def estimate_tables(
    networks: Annotated[list[str] | None, typer.Argument(help="Zoo networks; all of them by default.")] = None,
    precision: Annotated[Precision, typer.Option(help="Types that layers may compute in; not 8 bits.")] = Precision.F32,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the tables.")] = _ESTIMATED,
) -> None:
    """Write tables by the routines' analytic models, which need no database."""
    config = CompileConfig(threads=1, jobs=1, precision=precision)
    with open_workers(config.target, config.jobs) as pool:
        for network in networks or NETWORKS:
            found = estimate(network, pool, config)
            print(f"{save(found, output)}: {len(found.problem.nodes)} layers", flush=True)


@app.command("solvers")
def compare_solvers(tables: _Tables = _TABLES, output: _Output = _OUTPUT) -> None:
    """Greedy, dynamic programming and PBQP against the global optimum (SoftNeuro, NeoCPU)."""
    _publish("solvers", solvers.run(load_all(tables)), solvers.plot, output)


@app.command("learning")
def compare_learning(
    tables: _Tables = _TABLES,
    output: _Output = _OUTPUT,
    networks: Annotated[list[str] | None, typer.Option("--network", help="Networks other than the usual.")] = None,
) -> None:
    """Q-learning against random search (QS-DNN, figure 5)."""
    picked = [each for each in load_all(tables) if each.network in (networks or learning.NETWORKS)]
    _publish("learning", learning.run(picked), learning.plot, output)


@app.command("sharing")
def compare_sharing(tables: _Tables = _TABLES, output: _Output = _OUTPUT) -> None:
    """Conversions charged once for all readers of a value against conversions charged on every edge."""
    _publish("sharing", sharing.run(load_all(tables)), sharing.plot, output)


@app.command("primitives")
def compare_primitives(
    tables: _Tables = _TABLES,
    output: _Output = _OUTPUT,
    networks: Annotated[list[str] | None, typer.Option("--network", help="Networks; all by default.")] = None,
) -> None:
    """Single primitives and libraries, searches, and the optimum, also beside a simulated GPU (QS-DNN, table II)."""
    picked = [each for each in load_all(tables) if each.network in (networks or NETWORKS)]
    alone = comparison.run_alone(picked)
    print(
        f"## primitives alone\n\n{markdown(alone)}\n\n{write_csv(alone, output / 'primitives-alone.csv')}", flush=True
    )
    _publish("primitives", comparison.run(picked), comparison.plot, output)


@app.command("sampling")
def compare_sampling(tables: _Tables = _TABLES, output: _Output = _OUTPUT) -> None:
    """The best candidate after measuring a part of them (ACLTuner)."""
    _publish("sampling", sampling.run(load_all(tables)), sampling.plot, output)


@app.command("transfer")
def compare_transfer(tables: _Tables = _TABLES, output: _Output = _OUTPUT) -> None:
    """The tuner's search with times of other networks, and without."""
    _publish("transfer", transfer.run(load_all(tables)), transfer.plot, output)


@app.command("worst-cases")
def compare_worst_cases(
    cpu: Annotated[str, typer.Option("--cpu", help="Class of the package's times.")] = "x86-64-v4",
    threads: Annotated[int, typer.Option(help="Thread count of the times.")] = 1,
) -> None:
    """Choosing the variant with the best worst case instead of the one that is predicted to be fastest."""
    print(f"## worst cases\n\n{markdown(worst_cases.run(shipped_samples(cpu, threads)))}\n", flush=True)


@app.command("layouts")
def compare_layouts(
    tables: _Tables = _TABLES,
    output: _Output = _OUTPUT,
    run: Annotated[
        list[str] | None, typer.Option("--run", help="Zoo network or ONNX file to compile in all steps, and time.")
    ] = None,
    db: Annotated[Path, typer.Option(help="Tuning database of the networks to run.")] = _DATABASE,
    threads: Annotated[int, typer.Option(help="Thread count to tune for and run on.")] = 1,
    seconds: Annotated[float, typer.Option(help="How long to time.")] = 60.0,
) -> None:
    """The gain by layouts, step by step (NeoCPU, table 3): by the tables or, with --run, as whole networks."""
    if not run:
        _publish("layouts", layouts.run(load_all(tables)), layouts.plot, output)
        return
    config = CompileConfig(threads=threads, database=db)
    models = [write(each, output) if each in NETWORKS else Path(each) for each in run]
    with tuning_progress() as progress:
        rows = [row for model in models for row in layout_run.run(model, config, seconds, progress)]
    print(f"## layouts, measured\n\n{markdown(rows)}\n\n{write_csv(rows, output / 'layouts-run.csv')}", flush=True)


@app.command("growth")
def measure_growth(
    output: _Output = _OUTPUT,
    most_layers: Annotated[int, typer.Option(help="Layers of the largest net.")] = 10_000,
    most: Annotated[int, typer.Option(help="The most candidates of a layer, and branches of a cell.")] = 64,
) -> None:
    """Solver time by layers, candidates and width, on synthetic nets."""
    _publish("growth", growth.run(most_layers, most), growth.plot, output)


@app.command("all")
def run_all(tables: _Tables = _TABLES, output: _Output = _OUTPUT) -> None:
    """Every experiment."""
    compare_solvers(tables, output)
    compare_sharing(tables, output)
    compare_primitives(tables, output)
    compare_learning(tables, output)
    compare_sampling(tables, output)
    compare_transfer(tables, output)
    compare_layouts(tables, output)
    measure_growth(output)


@app.command("record")
def record_comparisons(
    names: Annotated[list[str] | None, typer.Argument(help=f"Of {', '.join(COMPARISONS)}; all by default.")] = None,
    tables: _Tables = _TABLES,
    estimated: Annotated[Path, typer.Option(help="Folder with what `estimate` wrote.")] = _ESTIMATED,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for CSV files and plots.")] = _FIGURES,
) -> None:
    """Record what the documents show: then write it there by `python -m benchmarks.record write`."""
    for name in names or COMPARISONS:
        chosen = COMPARISONS.get(name)
        found = load_all(estimated if chosen is not None and chosen.is_estimated else tables)
        print(f"{name}: {len(record(name, found, output, RESULTS).rows)} rows", flush=True)


def _publish(name: str, rows: Sequence[Any], plot: Callable[[Sequence[Any], Path], Path], output: Path) -> None:
    if not rows:
        print(f"{name}: there are no tables of a network that it needs", file=sys.stderr)
        return
    print(f"## {name}\n\n{markdown(rows)}\n", flush=True)
    print(write_csv(rows, output / f"{name}.csv"), plot(rows, output / f"{name}.svg"), flush=True)


def main() -> int:
    """Run a command; returns the exit code."""
    try:
        app()
    except SartorError as error:
        print(f"selection: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
