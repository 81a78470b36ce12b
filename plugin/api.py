"""Compiling from Python."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from sartor.artifact import Artifact
from sartor.config import CompileConfig
from sartor.pipeline import compile_model
from sartor.progress import Progress, silent


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
        config: settings; by default the CPU of this machine, all its cores, results as ONNX Runtime's.
        output: the .vmfb to write; by default beside the model, under its name.
        progress: told what is going on.

    Raises:
        SartorError: of the kind that says what went wrong; ``output`` is then as it was.
    """
    source = Path(model)
    target = source.with_suffix(".vmfb") if output is None else Path(output)
    return compile_model(source, target, config or CompileConfig(), progress)
