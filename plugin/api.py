"""The Python interface for compiling."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from types import NoneType

from sartor.artifact import Artifact
from sartor.config import CompileConfig
from sartor.errors import UsageError
from sartor.pipeline import compile_model
from sartor.progress import Progress, silent
from sartor.runtime.runs.given_arguments import check_path, check_type
from sartor.several.switching import compile_switching
from sartor.tuning.selection.problem.cost import Objective


def compile(
    model: str | PathLike[str],
    config: CompileConfig | None = None,
    *,
    output: str | PathLike[str] | None = None,
    progress: Progress = silent,
) -> Artifact:
    """Tune an ONNX model for this machine and write it as one IREE module.

    Args:
        model: ONNX file.
        config: settings; by default this machine's CPU with all its cores, in f32.
        output: the .vmfb to write; by default beside the model, with the same name.
        progress: told about every step.

    Raises:
        SartorError: one of its subclasses, by the kind of failure; ``output`` is then unchanged.
    """
    check_path("model", model)
    check_type("config", config, (CompileConfig, NoneType), "a CompileConfig")
    if not callable(progress):
        raise UsageError(f"progress is {progress!r}, expected a function that takes a step and two numbers")
    if output is not None:
        check_path("output", output)
    source = Path(model)
    if not source.name:
        raise UsageError(f"'{source}' is not a file; name an .onnx file")
    target = source.with_suffix(".vmfb") if output is None else Path(output)
    settings = config or CompileConfig()
    compiled = compile_switching if settings.objective is Objective.COLD_LATENCY else compile_model
    return compiled(source, target, settings, progress)
