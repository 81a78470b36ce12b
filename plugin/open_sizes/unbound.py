"""Compiles a model whose user names no sizes: for any size up to bounds that the model has, or usual ones."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sartor.artifact import Artifact
from sartor.config import CompileConfig
from sartor.errors import UnsupportedModelError, UsageError
from sartor.onnx_model.dynamic.open_bounds import UnboundSizesError
from sartor.open_sizes.calls import CallLog
from sartor.open_sizes.compilation import OpenConfig, compile_open
from sartor.progress import Progress, silent
from sartor.publishing import Publication
from sartor.settings.size_range import SizeRange
from sartor.tuning.records.plan import Plan


def compile_unbound(
    unbound: UnboundSizesError,
    model: Path,
    output: Path,
    config: CompileConfig,
    progress: Progress = silent,
    whole: Publication | None = None,
    plan: Plan | None = None,
    log: CallLog | None = None,
) -> Artifact:
    """Write one plan for any size of a model that was refused because its sizes are not bound, with caches that grow in
    the module if it has such.

    Args:
        unbound: the refusal, which may have bounds.
        model, output, progress, whole, plan: as for ``compile_open``.
        config: settings; their shapes bind other sizes.
        log: as of ``OpenConfig``.

    Raises:
        UnboundSizesError: if there are no bounds, or no file for any size is made with these settings.
        SartorError: as ``compile_open``.
    """
    with bounded(unbound, config, log) as opened:
        return compile_open(model, output, opened, progress, whole, plan)


@contextmanager
def bounded(unbound: UnboundSizesError, config: CompileConfig, log: CallLog | None) -> Iterator[OpenConfig]:
    """The settings with the bounds of a refusal, with which failures are explained; arguments and errors are those of
    ``compile_unbound``."""
    bounds = unbound.bounds
    bounded = {} if bounds is None else bounds.shapes
    shapes: dict[str, tuple[int | SizeRange, ...]] = {**config.shapes, **bounded}
    named = _options(bounded)
    sources = () if bounds is None else (*bounds.sources, f"for other sizes change {named}")
    try:
        opened = OpenConfig(config, shapes, log, given=config.shapes, sources=sources, refusal=unbound)
    except UsageError:
        raise unbound from None
    try:
        yield opened
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"{unbound}; nor can a file for any size be made, as by {named}: {error}") from None


def _options(shapes: Mapping[str, tuple[int | SizeRange, ...]]) -> str:
    """The options of the command line that ask for the same."""
    texts = (f"{name}={','.join(map(str, shape))}" for name, shape in shapes.items())
    return " ".join(f"--shape {shlex.quote(text)}" for text in texts)
