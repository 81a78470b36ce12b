"""The steps of NeoCPU's Table 3 as whole networks: each is compiled by its plan, and all are timed interleaved in one
run.

The steps are those of ``layouts``. Each selects from fewer candidates, and conversions are measured as for other plans.
To make convolutions convert their inputs and outputs, an empty layer with ONNX's layout follows each convolution; it
generates no code.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.peers import Run, sartor_peer
from benchmarks.selection.layouts import BLOCKED, CHANNELS_LAST, CONVOLUTIONS
from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Layer, LayerKind, Task, TensorType, ValueRef
from sartor.codegen.ir.variants.routine import Variant, variants_of
from sartor.codegen.routines.iree.stock import Stock
from sartor.codegen.subgraphs.fusion import task_of
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.costing.layer_costs import make_tuner, tune
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.loading import import_network, open_workers
from sartor.planning.plan_solver import PlanSolver
from sartor.planning.recipe import Recipe
from sartor.profiling.builder import Builder
from sartor.progress import Progress, silent
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.benchmark import time_interleaved
from sartor.runtime.output_error import relative_error
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status
from sartor.tuning.selection.problem.limits import UNLIMITED
from sartor.tuning.store.store import Store

_SEAM = "held in ONNX's layout: "
BASELINE = "baseline"
# The baseline takes so much longer than the others that it is timed in separate rounds.
_FEWEST_ROUNDS = 5
# Seconds; a measurement is more than zero.
_NOTHING = 1e-12

Keep = Callable[[Task, Sequence[Variant]], Sequence[Variant]]
"""Selects the candidates of a task that a step keeps."""


@dataclass(frozen=True)
class MeasuredStep:
    """The result of one step on one network.

    Attributes:
        network: name.
        threads: number of threads.
        step: name of the step.
        conversions: number of the plan's conversions that move bytes.
        predicted: milliseconds by the tables.
        measured: median milliseconds of an inference.
        spread: distance of the quartiles of these, in percent.
        faster: measured speed-up over the baseline.
        error: relative error against ONNX Runtime.
    """

    network: str
    threads: int
    step: str
    conversions: int
    predicted: float
    measured: float
    spread: float
    faster: float
    error: float


def run(model: Path, config: CompileConfig, seconds: float, progress: Progress = silent) -> list[MeasuredStep]:
    """Tune a network, if it is not in the database, build all steps, and time them in turn.

    Args:
        model: ONNX file.
        config: database, threads and target.
        seconds: duration of timing.
        progress: told about every step.

    Raises:
        SartorError: if a step has no plan, or does not compile or run.
    """
    with tempfile.TemporaryDirectory(prefix="sartor-") as folder, open_workers(config.target, config.jobs) as pool:
        directory = Path(folder)
        with Store.open(config.database) as store:
            imported = import_network(model, config.importing, pool, progress, directory)
            tuner = make_tuner(store, pool, config.target, progress, directory)
            tables = tune(
                imported,
                find_candidates(imported, config.planning, everything=False),
                tuner,
                config.planning,
                config.search,
            )
            plans = step_plans(imported, tables, tuner, config, progress)
        built = {}
        for name, (own, recipe) in plans.items():
            place = directory / name.replace(" ", "-")
            place.mkdir()
            (build,) = Builder(own, pool, place, config.header, progress).build([recipe])
            built[name] = sartor_peer(build.files.module, config.threads)
        return _time(model, imported, config, {name: recipe for name, (_, recipe) in plans.items()}, built, seconds)


def step_plans(
    imported: ImportedModel, tables: Tables, tuner: Tuner, config: CompileConfig, progress: Progress = silent
) -> dict[str, tuple[ImportedModel, Recipe]]:
    """The best plan of each step, with the model whose layers it is for."""
    held = replace(imported, graph=with_seams(imported.graph))
    steps: dict[str, tuple[ImportedModel, Tables]] = {
        BASELINE: (imported, restricted(tables, imported.graph, lambda _, found: found[:1])),
        "layout": (
            held,
            with_seam_times(restricted(tables, imported.graph, _convolutions_in_blocks), held.graph, config),
        ),
        "transform elimination": (imported, restricted(tables, imported.graph, _through(BLOCKED))),
        "channels last": (imported, restricted(tables, imported.graph, _through(CHANNELS_LAST))),
        "global search": (imported, tables),
    }
    plans: dict[str, tuple[ImportedModel, Recipe]] = {}
    adapts = dict(tables.adapts)
    for name, (own, fewer) in steps.items():
        (recipe, *_), known = PlanSolver(own, tuner, config.planning, progress).within(
            replace(fewer, adapts=adapts), UNLIMITED
        )
        adapts.update(known.adapts)
        plans[name] = own, recipe
    return plans


def restricted(tables: Tables, graph: LayerGraph, keep: Keep) -> Tables:
    """Tables with fewer candidates of each task, with unchanged times."""
    variants, measured = {}, {}
    for key, task in graph.tasks().items():
        usable = tables.usable(key)
        variants[key] = tuple(keep(task, [variant for variant, _ in usable]))
        measured[key] = {
            variant.descriptor: _taking(measurement, tables.seconds(key, variant.descriptor))
            for variant, measurement in usable
        }
    return replace(tables, variants=variants, measured=measured)


def _taking(measurement: Measurement, seconds: float | None) -> Measurement:
    return replace(measurement, samples=(seconds or _NOTHING,), baseline_samples=())


def _convolutions_in_blocks(task: Task, found: Sequence[Variant]) -> Sequence[Variant]:
    """Keep convolutions in blocks of channels, and candidate 0 of other tasks."""
    return (task.kind in CONVOLUTIONS and _writing(found, BLOCKED)) or found[:1]


def _through(layout: str) -> Keep:
    """Keep candidates that read and write a layout, or else those that write it, or else all."""
    return lambda _, found: _writing(found, layout) or found


def _writing(found: Sequence[Variant], layout: str) -> Sequence[Variant]:
    writing = [each for each in found if each.implementation.output.layout == layout]
    through = [each for each in writing if all(read.layout == layout for read in each.implementation.inputs)]
    return through or writing


def with_seams(graph: LayerGraph) -> LayerGraph:
    """The graph with an empty layer in ONNX's layout after each convolution."""
    seams: dict[str, Layer] = {}

    def moved(ref: ValueRef) -> ValueRef:
        return ValueRef(seams[ref.source].name, 0) if ref.source in seams else ref

    layers: list[Layer] = []
    for layer in graph.layers:
        layers.append(replace(layer, inputs=tuple(map(moved, layer.inputs))))
        if layer.task.kind in CONVOLUTIONS:
            (result,) = layer.task.results
            seams[layer.name] = Layer(f"{_SEAM}{layer.name}", (), _seam(result), (ValueRef(layer.name, 0),), ())
            layers.append(seams[layer.name])
    outputs = tuple(
        replace(output, source=moved(output.source)) if output.source else output for output in graph.outputs
    )
    return LayerGraph(tuple(layers), graph.inputs, outputs)


def _seam(tensor: TensorType) -> Task:
    text = f"util.func public @layer(%arg0: {tensor}) -> {tensor} {{ util.return %arg0 : {tensor} }}"
    return task_of(LayerKind.FIXED, text, (tensor,), (), (tensor,))


def with_seam_times(tables: Tables, graph: LayerGraph, config: CompileConfig) -> Tables:
    """The tables with a time of 0 for empty layers."""
    variants, measured = dict(tables.variants), dict(tables.measured)
    for layer in graph.layers:
        if layer.name.startswith(_SEAM):
            key = layer.task.key
            variants[key] = tuple(
                variant for variant in variants_of(Stock(), layer.task, config.target) if isinstance(variant, Variant)
            )
            name = variants[key][0].descriptor
            stored = MeasurementKey(key, name, "", "", config.threads, "", config.target.key)
            measured[key] = {name: Measurement(stored, Status.OK, (_NOTHING,))}
    return replace(tables, variants=variants, measured=measured)


def _time(
    model: Path,
    imported: ImportedModel,
    config: CompileConfig,
    recipes: Mapping[str, Recipe],
    built: Mapping[str, Run],
    seconds: float,
) -> list[MeasuredStep]:
    feeds = imported.samples
    reference = ReferenceModel(model, threads=config.threads)(feeds)
    errors = {name: relative_error(each(feeds), reference) for name, each in built.items()}
    calls = {name: (lambda each=each: each(feeds)) for name, each in built.items()}
    slow = time_interleaved(calls, min_rounds=_FEWEST_ROUNDS, min_seconds=0.0)[BASELINE]
    quick = {name: call for name, call in calls.items() if name != BASELINE}
    samples = time_interleaved(quick, min_rounds=_FEWEST_ROUNDS, min_seconds=seconds) | {BASELINE: slow}
    return [
        MeasuredStep(
            network=model.stem,
            threads=config.threads,
            step=name,
            conversions=_conversions(recipe),
            predicted=(recipe.plan.predicted or 0.0) * 1e3,
            measured=samples[name].median * 1e3,
            spread=100 * (samples[name].quantile(0.75) - samples[name].quantile(0.25)) / samples[name].median,
            faster=slow.median / samples[name].median,
            error=errors[name],
        )
        for name, recipe in recipes.items()
    ]


def _conversions(recipe: Recipe) -> int:
    return sum(bool(adapt.seconds) for adapt in recipe.plan.adapts)
