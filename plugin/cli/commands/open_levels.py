"""Compiles a model for any size for several CPU levels into one file, among which the module chooses when loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from sartor.artifact import SeveralArtifact
from sartor.codegen.ir.target import Target
from sartor.open_sizes.compilation import OpenConfig
from sartor.open_sizes.levels import check_levels, open_plan
from sartor.progress import Progress, silent
from sartor.publishing import Publication
from sartor.several.compilation import compile_several
from sartor.several.settings import SeveralConfig
from sartor.tuning.records.plan_set import PlanSet


def compile_open_levels(
    model: Path,
    output: Path,
    opened: OpenConfig,
    targets: Sequence[Target],
    progress: Progress = silent,
    plans: PlanSet | None = None,
    whole: Publication | None = None,
) -> SeveralArtifact:
    """Write the best plans of a model for any size for several CPU levels as one module.

    Args:
        model: ONNX file.
        output: path of the .vmfb, which is replaced at the very end, or not at all.
        opened: settings, whose target does not count.
        targets: the levels.
        progress: told about every step.
        plans: built in place of tuning; one for each level.
        whole: what the module is published with; by default it is published alone.

    Raises:
        SartorError: one of its subclasses, by the kind of failure.
    """
    several = SeveralConfig(check_levels(opened, targets), tuple(targets), is_open=True)
    made = compile_several(model, output, several, progress, plans, whole, partial(open_plan, opened=opened))
    return replace(made, sizes=opened.sources or tuple(map(str, made.manifest.sizes)))
