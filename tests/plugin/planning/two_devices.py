"""Plans for the CPU and a GPU by tables that a test makes up: the GPU is good at convolutions, the CPU at all else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from sartor.codegen.ir.layer import LayerKind
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Variant
from sartor.codegen.routines.iree.channels_last import ChannelsLast
from sartor.codegen.routines.iree.stock import Stock
from sartor.config import CompileConfig
from sartor.costing.listing import list_candidates
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.plan_solver import PlanSolver
from sartor.planning.recipe import Recipe
from sartor.progress import silent
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.selection.problem.limits import Limits
from sartor.tuning.transfers.times import Transfers, TransferTimes
from tests.plugin.planning.selecting_fakes import FakeTuner, measurement

CONFIG = CompileConfig(target=Target.joined([Target.create("cpu"), Target.create("vulkan")]), threads=1)
_FAST, _SLOW = 1e-6, 1e-3


def transfers(to_gpu: float, to_cpu: float) -> Transfers:
    """Transfers that take some seconds, whatever the size."""
    return {("cpu", "vulkan"): TransferTimes(((1, to_gpu),)), ("vulkan", "cpu"): TransferTimes(((1, to_cpu),))}


def tables(imported: ImportedModel, moved: Transfers) -> Tables:
    """Stock code on both devices, and images with channels last, which pay on the CPU."""
    routines, graph = (Stock(), ChannelsLast()), imported.graph
    first, second = (list_candidates(graph, routines, target) for target in CONFIG.target.each)
    kinds = {key: task.kind for key, task in graph.tasks().items()}
    variants = (first + second).variants
    measured = {
        key: {each.descriptor: measurement(each.descriptor, _seconds(each, kinds[key])) for each in listed}
        for key, listed in variants.items()
    }
    return Tables(variants, measured, transfers=moved)


def _seconds(variant: Variant, kind: LayerKind) -> float:
    if kind is LayerKind.CONVOLUTION:
        return _FAST if variant.device == "vulkan" and variant.implementation.output.layout == "nchw" else _SLOW
    if variant.device == "vulkan":
        return _SLOW
    return _SLOW / 4 if variant.implementation.output.layout == "nchw" else _FAST


def selected(imported: ImportedModel, moved: Transfers) -> Recipe:
    """The best plan."""
    tuner = cast(Tuner, FakeTuner())
    (recipe, *_), _ = PlanSolver(imported, tuner, CONFIG.planning, silent).within(tables(imported, moved), Limits())
    return recipe


def devices_of(recipe: Recipe) -> Mapping[str, str]:
    """The device of each layer, by name."""
    return {name: variant.device for name, variant in recipe.variants.items()}
