"""Resolved plans are told apart by what they are built from, guessed where nothing is measured, and reported."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from sartor.codegen.ir.layer import TensorType, ValueRef
from sartor.codegen.ir.sizes.dims import Extent, Symbol
from sartor.codegen.ir.target import Target
from sartor.codegen.routines import routines_for
from sartor.config import CompileConfig
from sartor.costing.listing import list_candidates
from sartor.errors import CompileError, UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.value_ranges import quantised_by
from sartor.planning.guessed_recipe import check_predictable, guessed_recipe
from sartor.planning.recipe import Recipe, unsplit_recipe
from sartor.planning.recorded_recipe import check_plan
from sartor.policies import Precision
from sartor.profiling.builder import Builder
from sartor.runtime.driver.noise import NORMAL, Noise
from sartor.runtime.manifest import NOISE_FORMAT, SHIFTED_FORMAT, Manifest
from sartor.tuning.calibration.quantised_range import QuantisedRange
from sartor.tuning.selection.problem.pin import Pin
from sartor.tuning.workers.pool import JobResult, JobStatus, WorkerPool
from tests.importing import ImportedOf
from tests.plugin.planning.plans import PLAN

CONFIG = CompileConfig(target=Target.create("cpu"))


@pytest.fixture
def imported(imported_of: ImportedOf) -> ImportedModel:
    return imported_of("residual")


@pytest.fixture
def recipe(imported: ImportedModel) -> Recipe:
    return guessed_recipe(
        imported, list_candidates(imported.graph, routines_for(()), CONFIG.target).variants, CONFIG.planning
    )


def test_recipes_of_the_same_content_have_the_same_digest(imported: ImportedModel, recipe: Recipe) -> None:
    again = guessed_recipe(
        imported, list_candidates(imported.graph, routines_for(()), CONFIG.target).variants, CONFIG.planning
    )
    assert again is not recipe
    assert again.digest == recipe.digest
    assert (
        unsplit_recipe(imported, CONFIG.planning).digest
        == unsplit_recipe(imported, CONFIG.planning).digest
        != recipe.digest
    )


def test_another_plan_or_other_code_is_another_recipe(recipe: Recipe) -> None:
    name, variant = next(iter(recipe.variants.items()))
    changed = replace(variant, implementation=replace(variant.implementation, body=f"{variant.implementation.body} "))
    others = [
        replace(recipe, plan=replace(recipe.plan, threads=3)),
        replace(recipe, plan=replace(recipe.plan, ranges={"conv1:0": (0.5, 1)})),
        replace(recipe, variants={**recipe.variants, name: changed}),
    ]
    assert len({recipe.digest, *(other.digest for other in others)}) == 4


@dataclass
class _Pool:
    """Compiles all but the unsplit model."""

    asked: list[str] = field(default_factory=list)

    def map_unordered(
        self, _: str, jobs: list[tuple[str, dict[str, object]]], __: float, *, deadline: float | None = None
    ) -> list[JobResult]:
        self.asked += [name for name, _ in jobs]
        return [self._result(name, "bytecode" in vars(job["net"])) for name, job in jobs]

    def _result(self, name: str, fails: bool) -> JobResult:
        if fails:
            return JobResult(name, JobStatus.FAILED, None, "no", 1.0)
        return JobResult(name, JobStatus.OK, 7, "", 1.0)


def test_what_was_compiled_is_not_compiled_again(imported: ImportedModel, recipe: Recipe, tmp_path: Path) -> None:
    pool, unsplit = _Pool(), unsplit_recipe(imported, CONFIG.planning)
    builder = Builder(imported, cast(WorkerPool, pool), tmp_path, CONFIG.header, lambda *_: None)
    (built,) = builder.build([recipe, unsplit, replace(recipe)])
    assert (built.digest, built.files.weight_bytes) == (recipe.digest, 7)
    assert len(pool.asked) == 2
    assert builder.build([replace(recipe)]) == [built]
    assert len(pool.asked) == 2
    assert builder.failure(replace(unsplit)).message == "no"
    with pytest.raises(CompileError, match="no plan compiles: no"):
        builder.build([unsplit])


@pytest.mark.parametrize(("offset", "known"), [(0, NOISE_FORMAT), (-1, SHIFTED_FORMAT)])
def test_older_versions_refuse_sizes_with_an_offset_whatever_else_they_know(
    offset: int, known: int, imported: ImportedModel
) -> None:
    (first, *others) = imported.graph.inputs
    dims: list[int | Extent] = [Extent((Symbol("n", 2, 9),), offset=offset), *first.type.shape[1:]]
    opened = replace(first, type=TensorType.of_dims(dims, first.type.dtype))
    graph = replace(imported.graph, inputs=(opened, *others))
    drawn = replace(imported, graph=graph, noise=(Noise(first.name, NORMAL, 0.0, 1.0),))
    text = unsplit_recipe(imported, CONFIG.planning).manifest(drawn, CONFIG.header)
    assert Manifest.from_json(text).format == known


@pytest.mark.parametrize("precision", [Precision.F32, Precision.MIXED, Precision.INT8])
def test_guesses_do_not_round_what_the_model_does_not(precision: Precision, imported: ImportedModel) -> None:
    """Nobody measures what 8 bits cost where the target cannot be run."""
    config = CompileConfig(target=Target.create("cpu", "cascadelake"), precision=precision)
    ranges = {ref: QuantisedRange(0.1, 0, "int8") for ref in [*_values(imported)]}
    calibrated = replace(imported, ranges=ranges)
    variants = list_candidates(imported.graph, routines_for(precision.types), config.target).variants
    guessed = guessed_recipe(calibrated, variants, config.planning)
    assert {variant.dtype for variant in guessed.variants.values()} == {"f32"}
    assert not guessed.plan.ranges


def test_a_guess_that_quantises_says_by_which_ranges(imported: ImportedModel) -> None:
    """A plan without them could not be built again."""
    config = CompileConfig(
        target=Target.create("cpu", "cascadelake"), precision=Precision.INT8, pins=(Pin("conv1", "cpu:i8/*.dots{*"),)
    )
    calibrated = replace(imported, ranges={ref: QuantisedRange(0.1, 0, "int8") for ref in _values(imported)})
    variants = list_candidates(imported.graph, routines_for(config.precision.types), config.target).variants
    guessed = guessed_recipe(calibrated, variants, config.planning)
    assert guessed.variants["conv1"].dtype == "i8"
    assert quantised_by(guessed.plan.ranges, replace(imported, ranges={})).ranges


def _values(imported: ImportedModel) -> list[ValueRef]:
    graph = imported.graph
    given = [ValueRef(None, index) for index in range(len(graph.inputs))]
    return given + [ValueRef(layer.name, index) for layer in graph.layers for index in range(len(layer.task.results))]


@pytest.mark.parametrize(
    ("known", "wants_front", "option"),
    [
        ({}, True, "--pareto"),
        ({"target": "cuda:sm_75", "memory_limit": 1}, False, "--memory-limit"),
        ({"target": "cuda:sm_75", "objective": "memory"}, False, "--objective memory"),
    ],
)
def test_what_cannot_be_had_without_measuring_is_refused(known: dict[str, Any], wants_front: bool, option: str) -> None:
    config = CompileConfig(**{"target": "cpu:aarch64:neoverse-n1", **known})
    with pytest.raises(UsageError, match=f"does not run {config.target} code.* leave {option} out"):
        check_predictable(config.planning, wants_front=wants_front)


@pytest.mark.parametrize("known", [{"target": "cuda:sm_75"}, {"target": "cuda:sm_80", "memory_limit": 1}])
def test_models_predict_times_and_memory(known: dict[str, Any]) -> None:
    check_predictable(CompileConfig(**known).planning)


@pytest.mark.parametrize(
    ("planned", "advice"),
    [
        ("cuda:sm_80", "pass --target cuda --arch sm_80"),
        ("cpu:host,vulkan:llvmpipe", "pass --target cpu,vulkan --cpu host --arch llvmpipe"),
        ("toaster", "the targets are cpu, vulkan, cuda"),
        ("toaster:2", "the targets are cpu, vulkan, cuda"),
        ("cpu", "the targets are cpu, vulkan, cuda"),
        ("", "the targets are cpu, vulkan, cuda"),
    ],
)
def test_a_plan_for_another_target_says_which_to_pass(planned: str, advice: str) -> None:
    with pytest.raises(UsageError, match=f"another target: {planned}, not cpu:x86-64-v3; {advice}$"):
        check_plan(replace(PLAN, target=planned), Target("cpu", "x86-64-v3"), {})
