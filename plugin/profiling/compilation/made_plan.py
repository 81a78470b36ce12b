"""A plan of a file with several, and what it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.candidates import Rejection
from sartor.config import CompileConfig
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.recipe import Recipe
from sartor.profiling.compilation.bench import Bench
from sartor.profiling.network_runner import NetRunner
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.records.plan import Plan


@dataclass(frozen=True)
class Made:
    """A plan of a file with several.

    Attributes:
        target: what it is for.
        shapes: that bind the inputs' dynamic dimensions.
        imported: the model, with the shapes that it is for.
        recipe: the plan with its code.
        plan: the same with measured times.
        run: beside the reference, judged; None if it was not run.
        runner: runs modules of this model; None if no machine at hand runs the target.
        rejections: why routines do not support layers, by task.
    """

    target: Target
    shapes: Mapping[str, tuple[int, ...]]
    imported: ImportedModel
    recipe: Recipe
    plan: Plan
    run: NetRun | None = None
    runner: NetRunner | None = None
    rejections: tuple[Rejection, ...] = ()


@dataclass(frozen=True)
class PlanTask:
    """What one plan of a file with several is made of.

    Attributes:
        model: ONNX file.
        output: path of the .vmfb.
        config: settings of this plan.
        bench: what plans are made with.
        others: what else is written, by the option that names it.
        elsewhere: whether other machines measure, which run the target.
    """

    model: Path
    output: Path
    config: CompileConfig
    bench: Bench
    others: Mapping[str, Path]
    elsewhere: bool = False


class MakePlan(Protocol):
    """Makes a plan of a file with several: a saved one, or else one that is tuned or predicted."""

    def __call__(self, task: PlanTask, saved: Plan | None) -> Made:
        """The plan with its code."""
