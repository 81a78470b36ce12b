"""A file for any size beside files that are made for one size alone: time of a call, of the compilation, and bytes.

    python -m benchmarks.fixed_sizes build encoder.onnx build/sizes --size batch=1 --size sequence=1,16,77 -- --fast
    python -m benchmarks.fixed_sizes show build/sizes --seconds 1

The first compiles the model for any size, and then for each of the sizes, all with the same options, which follow
``--``, and with empty caches; it keeps what lies in the folder already. The second times each size in both files in
turn. Compilations are compared by the time of all processors, which other programs change little, and by what a clock
shows.
"""

from __future__ import annotations

import json
import operator
import os
import resource
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from benchmarks.open_sizes import combinations, mean
from sartor.cli.options.sizes import sized_inputs
from sartor.runtime.benchmark import BLOCK, PAUSE, time_interleaved
from sartor.runtime.module_facts import module_signature
from sartor.runtime.session import Session
from sartor.samples.feeds import make_feeds

app = typer.Typer(help=__doc__)
_OPEN, _SECONDS = "open.vmfb", "seconds.json"


class Taken(NamedTuple):
    """Seconds of a compilation: of all processors, and by a clock."""

    processors: float
    clock: float


@app.command()
def build(
    model: Annotated[Path, typer.Argument(help="The ONNX file.")],
    folder: Annotated[Path, typer.Argument(help="Where modules are kept.")],
    size: Annotated[list[str], typer.Option(help="Sizes of a dimension, as batch=1,4,8.")],
    options: Annotated[list[str] | None, typer.Argument(help="Options of each compilation.")] = None,
    shape: Annotated[list[str] | None, typer.Option(help="Ranges of the file for any size, as x=1..8,64.")] = None,
) -> None:
    """Compile a model for any size, and for single ones."""
    folder.mkdir(parents=True, exist_ok=True)
    _compile(model, folder / _OPEN, [f"--shape={each}" for each in shape or ()], options or [])
    inputs = module_signature(folder / _OPEN).inputs
    for sizes in combinations(size):
        given = [
            f"--shape={spec.name}={','.join(map(str, spec.shape))}"
            for spec in sized_inputs(folder / _OPEN, inputs, sizes)
        ]
        _compile(model, folder / f"{' '.join(sizes)}.vmfb", given, options or [])


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(help="Where modules are kept.")],
    threads: Annotated[int, typer.Option(help="Threads of each session.")] = 1,
    seconds: Annotated[float, typer.Option(help="Duration of the timing of a size.")] = 1.0,
    rounds: Annotated[int, typer.Option(help="Blocks of runs that each file has at least.")] = 5,
    block: Annotated[float, typer.Option(help="Duration of a block.")] = BLOCK,
) -> None:
    """Time calls of each size in both files; prints a table in Markdown."""
    opened, taken = folder / _OPEN, _taken(folder)
    session, inputs = Session(opened, threads=threads), module_signature(opened).inputs
    print("| sizes | fixed ms | open by fixed: time | bytes | compiling: processors | clock |")
    print("|---|---:|---:|---:|---:|---:|")
    rows = []
    for path in [folder / name for name in taken if name != _OPEN]:
        feeds = make_feeds(sized_inputs(opened, inputs, path.stem.split()), {})
        with Session(path, threads=threads) as fixed:
            runs = {"open": partial(session.run, None, feeds), "fixed": partial(fixed.run, None, feeds)}
            timed = time_interleaved(runs, min_rounds=rounds, min_seconds=seconds, block=block, pause=PAUSE)
            mine, other = timed["open"].median, timed["fixed"].median
        larger = opened.stat().st_size / path.stat().st_size
        rows.append((mine / other, larger, *map(operator.truediv, taken[_OPEN], taken[path.name])))
        print(f"| {path.stem.replace(' ', ', ')} | {other * 1e3:.3f} | {_joined(rows[-1])} |", flush=True)
    columns = [*zip(*rows, strict=True)]
    print(f"| mean | | {_joined(map(mean, columns))} |\n| most | | {_joined(map(max, columns))} |")


def _compile(model: Path, module: Path, shapes: list[str], options: list[str]) -> None:
    """Compile a model with empty caches, and note the seconds of all processors; keep a module that is there."""
    if module.exists():
        return
    before, begin = _processor_seconds(), time.monotonic()
    with tempfile.TemporaryDirectory() as caches:
        program = Path(sysconfig.get_path("scripts"), "compile-to-vmfb")
        command = [*map(str, (program, model, "-o", module)), *shapes, *options]
        subprocess.run(command, check=True, env={**os.environ, "XDG_CACHE_HOME": caches})
    own = Taken(_processor_seconds() - before, time.monotonic() - begin)
    taken = {**_taken(module.parent), module.name: own}
    (module.parent / _SECONDS).write_text(json.dumps(taken), encoding="utf-8")


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _taken(folder: Path) -> dict[str, Taken]:
    """What compilations took, by the file's name."""
    path = folder / _SECONDS
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {name: Taken(*seconds) for name, seconds in kept.items()}


def _joined(ratios: Iterable[float]) -> str:
    return " | ".join(f"{ratio:.2f}" for ratio in ratios)


if __name__ == "__main__":
    app()
