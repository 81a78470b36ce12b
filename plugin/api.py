"""The Python interface for compiling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from types import NoneType

from sartor.artifact import Artifact
from sartor.config import CompileConfig
from sartor.errors import UsageError
from sartor.onnx_model.dynamic.open_bounds import UnboundSizesError
from sartor.open_sizes.calls import CallLog
from sartor.open_sizes.compilation import OpenConfig, compile_open
from sartor.open_sizes.unbound import compile_unbound
from sartor.pipeline import compile_model
from sartor.progress import Progress, silent
from sartor.runtime.runs.given_arguments import check_path, check_type
from sartor.settings.size_range import SizeRange, read_open_shapes
from sartor.several.switching import compile_switching
from sartor.tuning.selection.problem.cost import Objective


def compile(
    model: str | PathLike[str],
    config: CompileConfig | None = None,
    *,
    shapes: Mapping[str, Sequence[int | str | SizeRange]] | None = None,
    calls: str | PathLike[str] | None = None,
    output: str | PathLike[str] | None = None,
    progress: Progress = silent,
) -> Artifact:
    """Tune an ONNX model for this machine and write it as one IREE module.

        sartor.compile("encoder.onnx", shapes={"input_ids": ("1..8", "1..512")})

    A model with free dimensions that ``shapes`` and ``config`` leave free becomes a file for any size up to bounds that
    the artifact tells, as by the command line.

    Args:
        model: ONNX file.
        config: settings; by default this machine's CPU with all its cores, in f32.
        shapes: shapes of inputs by name, in place of those of ``config``. A range, as ``"1..512"`` or ``"32..640:32"``,
            makes one plan for any size in it.
        calls: for any size, a file that tells with which sizes the network is called, as ``--sizes`` reads it.
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
    if calls is not None:
        check_path("calls", calls)
    log = None if calls is None else CallLog(Path(calls))
    opened = read_open_shapes("shapes", settings.shapes if shapes is None else shapes)
    fixed = {name: tuple(size for size in shape if isinstance(size, int)) for name, shape in opened.items()}
    if fixed != opened:
        return compile_open(source, target, OpenConfig(replace(settings, shapes={}), opened, log), progress)
    settings = replace(settings, shapes=fixed)
    compiled = compile_switching if settings.objective is Objective.COLD_LATENCY else compile_model
    try:
        made = compiled(source, target, settings, progress)
    except UnboundSizesError as error:
        return compile_unbound(error, source, target, settings, progress, log=log)
    if log is not None:
        raise UsageError("calls is for a file for any size, and all sizes of this model are fixed; leave it out")
    return made
