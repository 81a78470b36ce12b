"""Plans that a GPU does not run as whole networks because of their fused layers, each of which ran alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from sartor.codegen.ir.graph import LayerGraph
from sartor.errors import CompileError, DisturbedError
from sartor.planning.recipe import Recipe
from sartor.profiling.refiner import BROKEN
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.records.measurement import Measurement, Status


class _Runs(Protocol):
    def run(self, recipes: Sequence[Recipe]) -> None:
        """Run those that did not run yet; ``CompileError`` if none compiles."""

    def run_of(self, recipe: Recipe) -> Measurement | None:
        """How a recipe ended; None if it did not run."""


def lost_by_fusion(recipes: Sequence[Recipe], runs: _Runs) -> str | None:
    """How the first plan with fused layers ended, if no plan works and there is such a one; else None.

    That none compiles is such an end: plans without fused layers, and networks in reserve, may still compile.

    Raises:
        DisturbedError: if something outside may have ended them.
    """
    plans = [recipe for recipe in recipes if not recipe.plan.unsplit]
    fused = [plan for plan in plans if any(layer.task.stages for layer in plan.graph.layers)]
    if not fused:
        return None
    try:
        runs.run(recipes)
    except DisturbedError:
        raise
    except CompileError as error:
        return _told(Status.COMPILE_FAILED, str(error))
    ends = [runs.run_of(plan) for plan in plans]
    if not all(end is not None and end.status in BROKEN for end in ends):
        return None
    end = runs.run_of(fused[0])
    return None if end is None else _told(end.status, end.message)


def _told(status: Status, message: str) -> str:
    return f"{status.value}: {message.partition(chr(10))[0]}"


def without_fusions(tables: Tables, graph: LayerGraph) -> Tables:
    """The tables without times of fused layers, so that none are selected."""
    fused = {fusion.layer.task.key for fusion in graph.fusions}
    return replace(tables, measured={key: found for key, found in tables.measured.items() if key not in fused})
