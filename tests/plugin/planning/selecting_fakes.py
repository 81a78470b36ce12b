"""Selection without measuring: times of variants and conversions are what a test says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import cast

from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Variant
from sartor.codegen.routines import routines_for
from sartor.config import CompileConfig
from sartor.costing.listing import list_candidates
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.plan_selector import PlanSelector
from sartor.planning.plan_solver import PlanSolver
from sartor.planning.recipe import Recipe
from sartor.policies import Precision
from sartor.progress import silent
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status

CONFIG = CompileConfig(target=Target.create("cpu", "sapphirerapids"), threads=1, jobs=1)


def measurement(descriptor: str, seconds: float | None) -> Measurement:
    key = MeasurementKey("task", descriptor, "source", "hardware", 1, "runtime", "cpu")
    if seconds is None:
        return Measurement(key, Status.COMPILE_FAILED, (), message="no lowering")
    return Measurement(key, Status.OK, (seconds,))


@dataclass
class FakeTuner:
    """Takes what it is told to have measured; conversions that are not to work fail."""

    works: Callable[[BenchmarkCase], bool] = lambda case: True
    is_late: bool = False
    load: float = 0.0
    again: int = 0

    def is_quiet(self) -> bool:
        return True

    def measure_anew(self, cases: Iterable[BenchmarkCase]) -> None:
        self.again += len([*cases])
        self.load = 0.0

    def measure(self, cases: Iterable[BenchmarkCase]) -> Mapping[str, Mapping[str, Measurement]]:
        return {
            case.key: {variant.descriptor: self._measured(case, variant) for variant in case.variants} for case in cases
        }

    def _measured(self, case: BenchmarkCase, variant: Variant) -> Measurement:
        return replace(measurement(variant.descriptor, 1e-6 if self.works(case) else None), foreign_load=self.load)


def tables_of(imported: ImportedModel, seconds: Callable[[str, str], float], *types: str) -> Tables:
    """All variants of a network, with the times that a function of task and descriptor gives them."""
    variants = list_candidates(imported.graph, routines_for(types), CONFIG.target).variants
    measured = {
        key: {each.descriptor: measurement(each.descriptor, seconds(key, each.descriptor)) for each in listed}
        for key, listed in variants.items()
    }
    return Tables(variants, measured)


def selector(imported: ImportedModel, tuner: FakeTuner, precision: Precision = Precision.F32) -> PlanSelector:
    config = replace(CONFIG, precision=precision)
    return PlanSelector(PlanSolver(imported, cast(Tuner, tuner), config.planning, silent), config.error_budget)


def by_type(**seconds: float) -> Callable[[str, str], float]:
    """Times of variants of all tasks, by the type that they compute in."""
    return lambda key, descriptor: seconds[type_of(descriptor)]


def type_of(descriptor: str) -> str:
    """The element type that a variant computes in."""
    return descriptor.partition(":")[2].partition("/")[0]


def types(recipe: Recipe) -> set[str]:
    """The element types that a plan computes in."""
    return {variant.dtype for variant in recipe.variants.values()}
