"""Measures and records, and writes what is recorded into README and docs.

    python -m benchmarks.record run zoo --threads 1 --threads 2
    python -m benchmarks.record run precision resnet50 --threads 1
    python -m benchmarks.record run models face.onnx boxes.onnx
    python -m benchmarks.record write

``run`` keeps a file for each network and number of threads, so it can be ended and continued; ``--missing`` measures
only what is not recorded. Nothing else may run on the machine meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.gpu import read_rows
from benchmarks.record.circumstances import Circumstances, circumstances, is_stale
from benchmarks.record.computed import read_computed
from benchmarks.record.documents import documents, with_results
from benchmarks.record.experiments import EXPERIMENTS, OURS
from benchmarks.record.observations import draft, without_source
from benchmarks.record.results import RESULTS, Result, read_results
from benchmarks.record.tables import LLVMPIPE, over_the_faster
from benchmarks.record.task import Effort, Task
from benchmarks.zoo import NETWORKS, write
from sartor.errors import SartorError, UsageError
from sartor.publishing import written

app = typer.Typer(help=__doc__, no_args_is_help=True)
_CONSOLE = Console()


@app.command()
def run(
    experiment: Annotated[str, typer.Argument(help=f"What to measure: {', '.join(EXPERIMENTS)}.")],
    networks: Annotated[list[str] | None, typer.Argument(help="Names of zoo networks, or ONNX files.")] = None,
    threads: Annotated[list[int], typer.Option(min=1, help="Threads of everyone; repeatable.")] = [1],  # noqa: B006
    directory: Annotated[Path, typer.Option(help="Where models and modules are kept.")] = Path("build/record"),
    seconds: Annotated[float, typer.Option(help="How long each process times.")] = Effort.seconds,
    processes: Annotated[int, typer.Option(min=1, help="How many processes time.")] = Effort.processes,
    missing: Annotated[bool, typer.Option(help="Only what is not recorded.")] = False,
) -> None:
    """Measure networks and record the results."""
    if experiment not in EXPERIMENTS:
        raise typer.BadParameter(f"there is no experiment '{experiment}'; there are {', '.join(EXPERIMENTS)}")
    chosen = EXPERIMENTS[experiment]
    directory.mkdir(parents=True, exist_ok=True)
    for name in networks or chosen.networks:
        for count in threads:
            model = write(name, directory) if name in NETWORKS else Path(name)
            if missing and (RESULTS / experiment / f"{model.stem}.{count}.json").exists():
                continue
            try:
                now = circumstances(Path.cwd())
                entries, failures = chosen.run(Task(model, count, directory, Effort(seconds, processes)))
            except UsageError:
                raise
            except SartorError as error:
                entries, failures = {}, {OURS: str(error)}
            result = Result(experiment, model.stem, count, now, entries, failures)
            result.save(RESULTS)
            _show(result)


@app.command("write")
def write_documents(
    check: Annotated[bool, typer.Option("--check", help="Only tell whether they are as they should be.")] = False,
) -> None:
    """Write tables and figures into README and docs."""
    for path in documents(Path.cwd()):
        text = path.read_text(encoding="utf-8")
        wanted = with_results(text, RESULTS)
        if wanted == text:
            continue
        if check:
            raise UsageError(f"'{path}' differs from the results; run: python -m benchmarks.record write")
        with written(path) as new:
            new.write_text(wanted, encoding="utf-8")
        _CONSOLE.print(f"{path} written")


@app.command()
def observe() -> None:
    """Print what the lists of observations lack, to be completed: figures that no result has."""
    for path in documents(Path.cwd()):
        for section, figures in without_source(path, RESULTS).items():
            _CONSOLE.print(f"# {path}\n{draft(section, figures)}", markup=False, soft_wrap=True, highlight=False)


@app.command()
def stale() -> None:
    """List results and tables of commits whose package differs from this one's."""
    for what, made in _recorded():
        if is_stale(Path.cwd(), made.commit):
            _CONSOLE.print(f"{made.date} {made.commit} {what}")


def _recorded() -> Iterator[tuple[str, Circumstances]]:
    """Everything that is recorded, in words, with where, when and by which command."""
    for name in EXPERIMENTS:
        for result in read_results(RESULTS, name):
            yield f"{name} {result.network}, {result.threads} threads", result.circumstances
    for row in read_rows(RESULTS / LLVMPIPE):
        if row.made is not None:
            yield f"{row.target} {row.network}", row.made
    for each in read_computed(RESULTS):
        yield f"table '{each.name}'", each.circumstances


def _show(result: Result) -> None:
    ratio = over_the_faster(result)
    times = ", ".join(
        f"{who} {entry.seconds * 1e3:.3g} ms{'' if entry.is_right else ' (wrong)'}"
        for who, entry in result.entries.items()
    )
    shown = "" if ratio is None else f"; the faster peer takes {ratio:.2f} times as long"
    _CONSOLE.print(f"{result.network}, {result.threads} threads: {times}{shown}")
    for who, reason in result.failures.items():
        _CONSOLE.print(f"  {who}: {reason}", style="red", markup=False)


def main() -> int:
    """Run the command; an error of Sartor is one line and its exit code."""
    try:
        app(standalone_mode=True)
    except SartorError as error:
        Console(stderr=True).print(f"record: {error}", markup=False)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
