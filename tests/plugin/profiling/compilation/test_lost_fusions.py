"""Plans whose fused layers run alone, and not in the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, KernelSource, Parameters, Rejected
from sartor.codegen.routines import routines_for
from sartor.codegen.routines.iree.stock import Stock
from sartor.config import CompileConfig
from sartor.costing.listing import list_candidates
from sartor.costing.time_budget import TimeBudget
from sartor.errors import CompileError, DisturbedError
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.plan_selector import PlanSelector
from sartor.planning.plan_solver import PlanSolver
from sartor.planning.recipe import Recipe, unsplit_recipe
from sartor.profiling.builder import Build, Builder
from sartor.profiling.compilation.plan_choice import choose, lost_by_fusion, refined, without_fusions
from sartor.profiling.network_runner import NetRunner
from sartor.profiling.profiler import Profiler
from sartor.profiling.refiner import Refiner
from sartor.progress import silent
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.networks.build_job import SplitNetwork
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.selection.problem.limits import UNLIMITED
from sartor.tuning.store.store import Store
from sartor.tuning.workers.pool import JobResult, JobStatus, WorkerPool
from tests.importing import ImportedOf
from tests.plugin.planning.selecting_fakes import CONFIG, FakeTuner, measurement, selector
from tests.plugin.planted_fusions import FailingFusion
from tests.tuning.measuring.device_faults import DeviceFault


@dataclass(frozen=True)
class Kernel:
    """Never emitted."""

    identity: str = "planted"


class FusedKernel(FailingFusion):
    """A fused pair on any device, in a kernel, as only kernels are selected."""

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        built = super().build(task, parameters, target)
        return built if isinstance(built, Rejected) else replace(built, kernel=cast(KernelSource, Kernel()))


@dataclass
class Runs:
    """Networks that end as planted if they have fused layers, and well otherwise."""

    fused: Status
    split: Status = Status.OK
    ran: list[Recipe] = field(default_factory=list)

    def run(self, recipes: Sequence[Recipe]) -> None:
        self.ran += recipes

    def run_of(self, recipe: Recipe) -> Measurement | None:
        status = self.fused if is_fused(recipe) else self.split
        samples = (1.0,) if status is Status.OK else ()
        return replace(measurement("net", 1.0), status=status, samples=samples, message="it hung\nfor ever")


class Compiler:
    """In place of workers: networks with fused layers end as planted, others compile."""

    def __init__(self, status: JobStatus) -> None:
        self.status = status

    def map_unordered(
        self, _: str, jobs: list[tuple[str, dict[str, Any]]], __: float, *, deadline: float | None = None
    ) -> list[JobResult]:
        return [self._result(name, job["net"]) for name, job in jobs]

    def take_others(self) -> float:
        return 0.0

    def _result(self, name: str, net: object) -> JobResult:
        if isinstance(net, SplitNetwork) and any(layer.task.stages for layer in net.graph.layers):
            return JobResult(name, self.status, None, "no such kernel\nat all", 1.0)
        return JobResult(name, JobStatus.OK, 0, "", 1.0)


class Runner:
    """Every network that was built runs."""

    def __init__(self, builder: Builder, selector: PlanSelector) -> None:
        self.builder = builder
        self.budget = selector.budget
        self.passes, self.criterion, self.verifies = 1, "", False

    def begin(self) -> None:
        """The reference is not needed."""

    def profile(self, builds: Sequence[Build]) -> dict[str, NetRun]:
        return {each.digest: NetRun(Status.OK, (1.0,), 0.0, memory=1) for each in builds}


def profiler(select: PlanSelector, status: JobStatus, folder: Path, config: CompileConfig = CONFIG) -> Profiler:
    """Compiles and runs by what stands in for workers."""
    pool = cast(WorkerPool, Compiler(status))
    builder = Builder(select.imported, pool, folder, config.header, silent)
    runner = cast(NetRunner, Runner(builder, select))
    return Profiler(Store.open(folder / "tuning.db"), builder, runner, select.policy)


def is_fused(recipe: Recipe) -> bool:
    return any(layer.task.stages for layer in recipe.graph.layers)


@pytest.fixture
def case(imported_of: ImportedOf) -> tuple[PlanSelector, Tables]:
    """A network with fused pairs, and tables in which these are fastest."""
    select = selector(imported_of("separable"), FakeTuner())
    return select, fused_tables(select.imported, CONFIG.target)


def fused_tables(imported: ImportedModel, target: Target) -> Tables:
    """Tables in which fused pairs are fastest."""
    fused = {each.layer.task.key for each in imported.graph.fusions}
    variants = list_candidates(imported.graph, routines_for(()), target, (Stock(), FusedKernel(DeviceFault()))).variants
    measured = {
        key: {each.descriptor: measurement(each.descriptor, 1e-5 if key in fused else 1e-4) for each in listed}
        for key, listed in variants.items()
    }
    return Tables(variants, measured)


def test_a_plan_without_fused_layers_is_selected_from_what_is_left(case: tuple[PlanSelector, Tables]) -> None:
    select, tables = case
    recipes, _ = select.select(tables, UNLIMITED)
    assert is_fused(recipes[0])
    end = lost_by_fusion(recipes, Runs(Status.TIMEOUT))
    assert end == "timeout: it hung"
    again, _ = select.select(without_fusions(tables, select.imported.graph), UNLIMITED)
    assert again
    assert not any(is_fused(each) for each in again)
    assert lost_by_fusion(again, Runs(Status.TIMEOUT)) is None


@pytest.mark.parametrize("status", [Status.OK, Status.WRONG_RESULT])
def test_a_plan_that_the_device_runs_is_not_lost(status: Status, case: tuple[PlanSelector, Tables]) -> None:
    """Whether it is right is judged elsewhere."""
    select, tables = case
    recipes, _ = select.select(tables, UNLIMITED)
    assert lost_by_fusion(recipes, Runs(status)) is None


def test_the_unsplit_model_is_no_plan(case: tuple[PlanSelector, Tables]) -> None:
    """It runs, and is far slower than layers without fusion."""
    select, tables = case
    recipes, _ = select.select(tables, UNLIMITED)
    runs = Runs(Status.CRASHED)
    assert lost_by_fusion([*recipes, unsplit_recipe(select.imported, select.policy)], runs) is not None
    assert runs.ran


def test_another_plan_that_works_is_enough(case: tuple[PlanSelector, Tables]) -> None:
    select, tables = case
    recipes, _ = select.select(tables, UNLIMITED)
    plain, _ = select.select(without_fusions(tables, select.imported.graph), UNLIMITED)
    assert lost_by_fusion([*recipes, *plain], Runs(Status.CRASHED)) is None
    assert lost_by_fusion([*recipes, *plain], Runs(Status.CRASHED, split=Status.CRASHED)) is not None


def test_a_plan_that_does_not_compile_is_lost(case: tuple[PlanSelector, Tables], tmp_path: Path) -> None:
    """The only one of its network: the builder has nothing then, and raises."""
    select, tables = case
    recipes, _ = select.select(tables, UNLIMITED)
    found = profiler(select, JobStatus.FAILED, tmp_path)
    with pytest.raises(CompileError):
        found.run(recipes)
    end = lost_by_fusion(recipes, found)
    assert end == "compile_failed: no plan compiles: no such kernel"


def test_a_compiler_that_was_killed_tells_nothing(case: tuple[PlanSelector, Tables], tmp_path: Path) -> None:
    select, tables = case
    recipes, _ = select.select(tables, UNLIMITED)
    with pytest.raises(DisturbedError):
        lost_by_fusion(recipes, profiler(select, JobStatus.KILLED, tmp_path))


@pytest.mark.parametrize("leaves_out", [True, False])
def test_a_compilation_goes_on_without_fused_layers(leaves_out: bool, imported_of: ImportedOf, tmp_path: Path) -> None:
    """Also if the unsplit model is kept in reserve, so that of the first networks none compiles."""
    imported, config = imported_of("separable"), replace(CONFIG, target=Target.create("vulkan"))
    solver = PlanSolver(imported, cast(Tuner, FakeTuner()), config.planning, silent)
    select, tables = PlanSelector(solver, config.error_budget), fused_tables(imported, config.target)
    tried: list[Recipe] = []

    def refine(_: Tables, recipes: Sequence[Recipe]) -> None:
        tried.extend(recipes)

    builds = profiler(select, JobStatus.FAILED, tmp_path, config)
    given = {"profiler": builds, "selector": select, "budget": TimeBudget()}
    refiner = cast(Refiner, SimpleNamespace(refine=refine, reserve=(), stock_estimate=None, **given))
    first, _ = choose(tables, select, builds)
    assert [is_fused(each) for each in first] == [True, False]
    refined(tables, refiner, None, None, whole=True, leaves_out=leaves_out)
    assert not any(is_fused(each) for each in tried)
    # Without fused layers the plan is not so much faster that the unsplit model would be hopeless.
    assert [each.plan.unsplit for each in tried] == [False, True]
