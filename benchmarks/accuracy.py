"""Measures the error and the speed of lower precision on networks with real weights.

    python -m benchmarks.accuracy mobilefacenet.onnx yolox_nano.onnx --max-error 0.05 --json accuracy.json

Each model is compiled in f32 and in every lower precision within one budget, on samples drawn for calibration. The
modules' errors are then measured on other samples, and all modules of a model are timed in turn in one run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.peers import Run, sartor_peer
from benchmarks.selection.results import markdown
from sartor.config import CompileConfig
from sartor.errors import SartorError
from sartor.onnx_model.reading.load import load_model
from sartor.pipeline import compile_model
from sartor.policies import Precision
from sartor.reference.random_inputs import sample_inputs
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.benchmark import BLOCK, time_interleaved
from sartor.runtime.driver.signature import Array
from sartor.tuning.errors.error_measures import ErrorMeasure, MeasureKind

_LOWER = (Precision.BF16, Precision.INT8, Precision.MIXED)
# Calibration draws samples with seeds from 0 on.
_FIRST_SEED = 1000

app = typer.Typer(help=__doc__)


@dataclass(frozen=True)
class Row:
    """A model in one precision.

    Attributes:
        model: stem of its file's name.
        precision: the allowed precision.
        layers: number of layers in each type.
        faster: time of the f32 plan divided by that of this plan, in one run.
        relative: relative error of the worst sample.
        cosine: cosine distance of the worst sample.
        top1: fraction of rows whose largest element has another index.
    """

    model: str
    precision: str
    layers: str
    faster: float
    relative: float
    cosine: float
    top1: float


def measure(model: Path, directory: Path, config: CompileConfig, samples: int) -> list[Row]:
    """Compile a model in f32 and in lower precisions, and compare all modules with ONNX Runtime.

    Args:
        model: the ONNX file; all its inputs have a shape.
        directory: for the modules.
        config: settings; ``max_error`` is the bound below f32.
        samples: number of samples on which errors are measured.

    Raises:
        SartorError: if the model cannot be read, or f32 does not compile.
    """
    loaded = load_model(model)
    feeds = [sample_inputs(loaded, _FIRST_SEED + number) for number in range(samples)]
    modules = {Precision.F32: _compile(Precision.F32, model, directory, config)}
    for precision in _LOWER:
        try:
            modules[precision] = _compile(precision, model, directory, config)
        except SartorError as error:
            Console(stderr=True).print(f"{model.stem} in {precision}: {error}", markup=False)
    runs = {precision: sartor_peer(path, config.threads) for precision, (path, _) in modules.items()}
    timed = time_interleaved(
        {each: partial(run, feeds[0]) for each, run in runs.items()}, min_rounds=8, min_seconds=4.0, block=BLOCK
    )
    reference = ReferenceModel(model, threads=config.threads)
    seconds = {run: timed[run].median for run in runs}
    return [
        Row(
            model.stem,
            run,
            modules[run][1],
            seconds[Precision.F32] / seconds[run],
            *errors(runs[run], reference, feeds),
        )
        for run in runs
    ]


def _compile(precision: Precision, model: Path, directory: Path, config: CompileConfig) -> tuple[Path, str]:
    """The module's path, and the number of its layers by type, as text."""
    path = directory / f"{model.stem}.{config.threads}.{precision}.vmfb"
    allowed = None if precision is Precision.F32 else config.max_error
    plan = compile_model(model, path, replace(config, precision=precision, max_error=allowed)).plan
    types = [layer.dtype for layer in plan.layers]
    listed = [f"{types.count(dtype)} {dtype}" for dtype in sorted(set(types), key=types.index)]
    return path, ", ".join(listed) or "stock"


def errors(run: Run, reference: ReferenceModel, feeds: Sequence[Mapping[str, Array]]) -> tuple[float, float, float]:
    """Relative error, cosine distance and top-1 disagreement over all samples."""
    kinds = (MeasureKind.RELATIVE, MeasureKind.COSINE, MeasureKind.TOP1)
    results = [(run(feed), reference(feed)) for feed in feeds]
    relative, cosine, top1 = (
        measure.of_samples([measure.of_sample(outputs, expected) for outputs, expected in results])
        for measure in map(ErrorMeasure, kinds)
    )
    return relative, cosine, top1


@app.command()
def show(
    models: Annotated[list[Path], typer.Argument(help="ONNX files whose inputs have shapes.")],
    max_error: Annotated[float, typer.Option(help="Relative error allowed below f32.")] = 0.05,
    threads: Annotated[int, typer.Option(help="Threads.")] = 1,
    samples: Annotated[int, typer.Option(min=1, help="On how many errors are measured.")] = 32,
    directory: Annotated[Path, typer.Option(help="Where modules are kept.")] = Path("build/accuracy"),
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the rows as JSON.")] = None,
) -> None:
    """Compile and compare every model."""
    directory.mkdir(parents=True, exist_ok=True)
    config = CompileConfig(threads=threads, max_error=max_error, database=directory / "tuning.db")
    rows: list[Row] = []
    for model in models:
        found = measure(model, directory, config, samples)
        Console().print(markdown(found), markup=False, soft_wrap=True)
        rows += found
        if json_file is not None:
            json_file.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    app()
