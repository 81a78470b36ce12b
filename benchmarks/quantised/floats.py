"""Networks of floats that are computed in 8 bits, within an error that a user allows, beside the same in f32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.zoo import sample_inputs, write
from sartor.config import CompileConfig
from sartor.onnx_model.reading.load import load_model
from sartor.pipeline import compile_model
from sartor.policies import Precision
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.benchmark import BLOCK, PAUSE, time_interleaved
from sartor.runtime.output_error import relative_error
from sartor.runtime.session import Session


@dataclass(frozen=True)
class Gain:
    """Median milliseconds of both modules, and the relative error of the one in 8 bits."""

    single: float
    narrow: float
    error: float


def gain(network: str, folder: Path, config: CompileConfig, max_error: float, seconds: float) -> Gain:
    """Compile a network in f32 and with 8 bits permitted, and time both in turn.

    Args:
        network: of the zoo.
        folder: for the files.
        config: settings of the module in f32.
        max_error: that the module in 8 bits may have.
        seconds: of timing.

    Raises:
        SartorError: if it cannot be compiled so.
    """
    model = write(network, folder)
    feeds = sample_inputs(load_model(model))
    expected = ReferenceModel(model, threads=config.threads)(feeds)
    narrow = replace(config, precision=Precision.INT8, max_error=max_error)
    runs: dict[str, Callable[[], object]] = {}
    sessions = {}
    for name, settings in (("f32", config), ("i8", narrow)):
        module = folder / f"{network}.{config.target.architecture}.{name}.vmfb"
        compile_model(model, module, settings)
        sessions[name] = Session(module, threads=config.threads)
        runs[name] = partial(sessions[name].run, None, feeds)
    error = relative_error(sessions["i8"].run(None, feeds), expected)
    samples = time_interleaved(runs, min_rounds=8, min_seconds=seconds, block=BLOCK, pause=PAUSE)
    return Gain(samples["f32"].median * 1e3, samples["i8"].median * 1e3, error)
