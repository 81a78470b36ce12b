"""All options of ``compile-to-vmfb``, and the settings that they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

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
    FastOption,
    PrecisionOption,
    WeightsOption,
    declared,
    read_calibration,
    read_calibration_method,
    read_pins,
    read_precision,
    read_time_budget,
    read_weight_blocks,
)
from sartor.cli.options.several import read_shape_sets, read_targets
from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.config_values import MEASURING, SETTINGS, Setting
from sartor.settings.size_range import OpenShapes
from sartor.several.settings import Shapes, settings_of
from sartor.tuning.records.plan import Plan
from sartor.tuning.records.plan_set import PlanSet

# What these ask for a plan settles as well, so that it would ignore them.
_SETTLED = ("save_plan", "weights", "fast", "sizes")
# The values of these are what one option says; others follow from several, or are checked further.
_AS_GIVEN = (
    *("double", "max_error", "error_measure", "objective", "memory_limit", "pareto", "selector", "database"),
    *("external_weights", "dump_directory", "search", "plans", "tune_until", "vs_stock", "workers", "tune_for"),
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
    double: Annotated[Literal["f32", "f64"] | None, declared("double")] = None
    max_error: Annotated[float | None, declared("max_error")] = None
    error_measure: Annotated[str | None, declared("error_measure")] = None
    calibration: Annotated[Path | None, declared("calibration")] = None
    calibration_method: Annotated[
        Literal["minmax", "percentile", "mse", "entropy"] | None, declared("calibration_method")
    ] = None
    objective: Annotated[
        Literal["latency", "cold", "cold+latency", "memory", "regret"] | None, declared("objective")
    ] = None
    memory_limit: Annotated[str | None, declared("memory_limit")] = None
    pareto: Annotated[str | None, declared("pareto")] = None
    tuning_db: Annotated[Path | None, declared("database")] = None
    search: Annotated[Literal["model", "full"] | None, declared("search")] = None
    plans: Annotated[int | None, declared("plans")] = None
    time_budget: Annotated[float | None, declared("time_budget")] = None
    fast: FastOption = False
    tune_until: Annotated[str | None, declared("tune_until")] = None
    vs_stock: Annotated[bool, declared("vs_stock")] = False
    workers: Annotated[str | None, declared("workers")] = None
    tune_for: Annotated[str | None, declared("tune_for")] = None
    shape: ShapesOption = None
    sizes: SizesOption = None
    bind: BindOption = None
    state: StateOption = None
    no_state: NoStateOption = False
    pin: Annotated[list[str] | None, declared("pins")] = None
    selector: Annotated[str | None, declared("selector")] = None
    plan: Annotated[Path | None, typer.Option(help="Build this plan instead of tuning.")] = None
    save_plan: Annotated[Path | None, typer.Option(help="Write the plan as JSON.")] = None
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Write a report on the module: one page, to be opened offline."),
    ] = None
    external_weights: Annotated[Path | None, declared("external_weights")] = None
    dump_dir: Annotated[Path | None, declared("dump_directory")] = None
    json: JsonOption = False
    version: VersionOption = False

    @property
    def of_tuning(self) -> list[str]:
        """Those that were given of which a plan settles what they ask for."""
        settled = [_field(setting) for setting in SETTINGS.values() if setting.is_settled]
        given = {name: getattr(self, name) for name in (*_SETTLED, *settled)}
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
        if isinstance(loaded, PlanSet) and isinstance(shapes, Mapping) and not (self.target or self.cpu or self.arch):
            targets, _ = settings_of(loaded)
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
        precision = read_precision(self.precision, self.weights)
        budget, given = read_time_budget(self.time_budget, fast=self.fast), self._as_given()
        if self.time_budget and not budget:
            # It was spent before: what is asked about measuring contradicts nothing, but cannot be done.
            given = {name: value for name, value in given.items() if name not in MEASURING}
        return CompileConfig(
            target=target,
            threads=read_threads(threads),
            precision=precision,
            weight_blocks=read_weight_blocks(self.weights),
            heeds_permissions=self.precision is None and self.weights is None,
            calibration=read_calibration(self.calibration),
            calibration_method=read_calibration_method(self.calibration_method, precision),
            shapes=shapes,
            bindings=read_bindings(self.bind),
            pins=read_pins(self.pin),
            time_budget=budget,
            fixes_threads=self.threads is not None,
            states=read_states(self.state, keeps_none=self.no_state),
            finds_states=not self.no_state,
            **given,
        )

    def _as_given(self) -> dict[str, Any]:
        """The settings that are what one option says, of those that were given."""
        given = {name: getattr(self, _field(SETTINGS[name])) for name in _AS_GIVEN}
        return {name: SETTINGS[name].asked(value) for name, value in given.items() if value is not None}


def _field(setting: Setting) -> str:
    """The field of ``CompileOptions`` that an option sets."""
    assert setting.option is not None
    return setting.option.removeprefix("--").replace("-", "_")
