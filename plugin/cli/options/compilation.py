"""All options of ``compile-to-vmfb``, and the settings that they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from sartor.cli.options.common import (
    ArchOption,
    BindOption,
    CpusOption,
    JsonOption,
    NoStateOption,
    ShapesOption,
    SizesOption,
    StateOption,
    TargetsOption,
    ThreadsOption,
    VersionOption,
    read_bindings,
    read_states,
    read_threads,
)
from sartor.cli.options.constraints import (
    CalibrationMethodOption,
    CalibrationOption,
    DoubleOption,
    ErrorMeasureOption,
    FastOption,
    MaxErrorOption,
    MemoryLimitOption,
    ObjectiveOption,
    ParetoOption,
    PlansOption,
    PrecisionOption,
    SearchOption,
    SelectorOption,
    TimeBudgetOption,
    TuneUntilOption,
    WeightsOption,
    read_calibration,
    read_calibration_method,
    read_error_measure,
    read_max_error,
    read_memory_limit,
    read_objective,
    read_pins,
    read_precision,
    read_time_budget,
    read_tune_until,
    read_weight_blocks,
)
from sartor.cli.options.several import read_shape_sets, read_targets
from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig, default_database
from sartor.config_values import pareto
from sartor.policies import Double, Search
from sartor.settings.size_range import OpenShapes
from sartor.several.settings import Shapes, settings_of
from sartor.tuning.records.plan import Plan
from sartor.tuning.records.plan_set import PlanSet
from sartor.tuning.selection import auto

# What these ask for a plan settles, so that it would ignore them.
_OF_TUNING = (
    *("save_plan", "pin", "selector", "objective", "memory_limit", "pareto", "tuning_db", "search", "precision"),
    *("weights", "calibration_method", "plans", "time_budget", "fast", "tune_until", "workers", "tune_for", "sizes"),
)


@dataclass(frozen=True)
class CompileOptions:
    """The options of one command, as they were given."""

    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="The model.")]
    output: Annotated[Path, typer.Option("--output", "-o", help="The .vmfb to write.")]
    target: TargetsOption = None
    cpu: CpusOption = None
    arch: ArchOption = None
    threads: ThreadsOption = None
    precision: PrecisionOption = None
    weights: WeightsOption = None
    double: DoubleOption = None
    max_error: MaxErrorOption = None
    error_measure: ErrorMeasureOption = None
    calibration: CalibrationOption = None
    calibration_method: CalibrationMethodOption = None
    objective: ObjectiveOption = None
    memory_limit: MemoryLimitOption = None
    pareto: ParetoOption = None
    tuning_db: Annotated[
        Path | None, typer.Option(help="Tuning database. (default: in the user's cache directory)")
    ] = None
    search: SearchOption = None
    plans: PlansOption = None
    time_budget: TimeBudgetOption = None
    fast: FastOption = False
    tune_until: TuneUntilOption = None
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="tcp://HOST:8786|FILE",
            help="Measure on the workers of this Dask scheduler, which 'sartor worker' starts. (default: here)",
        ),
    ] = None
    tune_for: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Kind of the workers' machines to tune for, if there are several."),
    ] = None
    shape: ShapesOption = None
    sizes: SizesOption = None
    bind: BindOption = None
    state: StateOption = None
    no_state: NoStateOption = False
    pin: Annotated[
        list[str] | None,
        typer.Option(metavar="LAYER-GLOB=ROUTINE-GLOB", help="Restrict layers to routines; repeatable."),
    ] = None
    selector: SelectorOption = None
    plan: Annotated[Path | None, typer.Option(help="Build this plan instead of tuning.")] = None
    save_plan: Annotated[Path | None, typer.Option(help="Write the plan as JSON.")] = None
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Write a report on the module: one page, to be opened offline."),
    ] = None
    external_weights: Annotated[
        Path | None, typer.Option(metavar="FILE.irpa", help="Write the weights to this file beside the module.")
    ] = None
    dump_dir: Annotated[
        Path | None,
        typer.Option(
            help="Write the model as loaded and as prepared, and the module after every pass, to this folder, in a "
            "folder of its own for each of several plans."
        ),
    ] = None
    json: JsonOption = False
    version: VersionOption = False

    @property
    def of_tuning(self) -> list[str]:
        """Those that were given of which a plan settles what they ask for."""
        given = {name: getattr(self, name) for name in _OF_TUNING}
        return [
            f"--{name.replace('_', '-')}"
            for name, value in given.items()
            if value not in (None, []) and value is not False
        ]

    @property
    def read_files(self) -> dict[str, Path]:
        """Files that are read beside the model, by option."""
        given = {"--plan": self.plan, "--sizes": self.sizes}
        return {option: path for option, path in given.items() if path is not None}

    def several(
        self, loaded: Plan | PlanSet | None
    ) -> tuple[tuple[Target, ...], tuple[Shapes, ...], OpenShapes | None]:
        """The targets, the sets of shapes of which each gets a plan, and the ranges of shapes that share one, if any.

        Args:
            loaded: the plan or plans of ``--plan``.

        Raises:
            UsageError: if an option cannot be read.
        """
        if isinstance(loaded, PlanSet) and not (self.target or self.cpu or self.arch or self.shape):
            return (*settings_of(loaded), None)
        targets, shapes = read_targets(self.target, self.cpu, self.arch), read_shape_sets(self.shape)
        return (targets, ({},), shapes) if isinstance(shapes, Mapping) else (targets, shapes, None)

    def config(self, target: Target, shapes: Shapes, threads: int | None) -> CompileConfig:
        """The settings for one plan.

        Args:
            target: what it is for.
            shapes: of inputs with open dimensions.
            threads: of the CPU; None for the default.

        Raises:
            UsageError: if an option cannot be read, or options contradict each other.
        """
        config = CompileConfig(
            target=target,
            threads=read_threads(threads),
            precision=read_precision(self.precision, self.weights),
            weight_blocks=read_weight_blocks(self.weights),
            heeds_permissions=self.precision is None and self.weights is None,
            double=Double(self.double or Double.F32),
            max_error=read_max_error(self.max_error),
            error_measure=read_error_measure(self.error_measure),
            calibration=read_calibration(self.calibration),
            calibration_method=read_calibration_method(
                self.calibration_method, read_precision(self.precision, self.weights)
            ),
            objective=read_objective(self.objective),
            memory_limit=read_memory_limit(self.memory_limit),
            pareto=None if self.pareto is None else pareto("--pareto", self.pareto),
            selector=self.selector or auto.NAME,
            shapes=shapes,
            bindings=read_bindings(self.bind),
            pins=read_pins(self.pin),
            database=self.tuning_db or default_database(),
            external_weights=self.external_weights,
            dump_directory=self.dump_dir,
            search=Search(self.search or Search.MODEL),
            tune_until=read_tune_until(self.tune_until),
            time_budget=read_time_budget(self.time_budget, fast=self.fast, until=self.tune_until),
            workers=self.workers,
            tune_for=self.tune_for,
            fixes_threads=self.threads is not None,
            states=read_states(self.state, keeps_none=self.no_state),
            finds_states=not self.no_state,
        )
        return config if self.plans is None else replace(config, plans=self.plans)
