"""The settings of a compilation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from platformdirs import user_cache_path

from sartor.codegen.ir.block_packing import USUAL_BLOCK
from sartor.codegen.ir.machines.cuda import ARCHITECTURES
from sartor.codegen.ir.target import Target
from sartor.config_values import MEASURING, SETTINGS, check_ranges_are_used
from sartor.devices import CPU
from sartor.errors import UsageError
from sartor.policies import (
    DEFAULT_PLANS,
    LOW_PRECISION_MAX_ERROR,
    CalibrationPolicy,
    Double,
    ImportPolicy,
    ModuleHeader,
    PlanPolicy,
    Precision,
    Search,
    StatePolicy,
)
from sartor.runtime.driver.amx import MATRIX_FEATURES, unusable
from sartor.runtime.driver.bound_input import Bindings
from sartor.runtime.driver.device import default_threads, device_settings, physical_cores, threads_on_all_cores
from sartor.settings.state_patterns import StatePattern
from sartor.settings.values import (
    SAMPLE_SUFFIXES,
)
from sartor.tuning.calibration.methods import CalibrationMethod
from sartor.tuning.errors.error_budget import ErrorBudget
from sartor.tuning.errors.error_measures import RELATIVE, ErrorMeasure, MeasureKind
from sartor.tuning.selection import auto
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.selection.problem.limits import Limits, Quantity
from sartor.tuning.selection.problem.pin import Pin
from sartor.tuning.selection.solve import check_solver
from sartor.tuning.store.sqlite.file import database_files


def default_database() -> Path:
    """The user's tuning database."""
    return user_cache_path("sartor") / "tuning.db"


@dataclass(frozen=True)
class CompileConfig:
    """Settings of one compilation.

    Every field is checked when the configuration is made. Where the command line takes more than a number, a text will
    do: ``CompileConfig(precision="int8", memory_limit="256MiB")``.

    Attributes:
        target: device and architecture.
        threads: CPU workers to tune for.
        max_error: largest error of the outputs against ONNX Runtime, by ``error_measure``; None for the precision's
            default, 1e-3 with f32 and 1e-2 below; by ``tokens`` 1e-2 also for what the model permits to round.
        precision: types in which routines may compute.
        weight_blocks: rows of a block that weights may be rounded in if the precision stores them in 4 bits.
        double: type in which float64 is computed; inputs and outputs are float64 in any case.
        calibration: file or directory of samples, on which errors are measured; None for random values.
        calibration_method: how 8-bit ranges are found on the samples.
        error_measure: measure of the outputs' error.
        objective: what the plan minimises; with ``cold+latency`` there are two, for the first inference and for later
            ones. With ``regret``, for any size, it is the worst ratio to the best plan for the sizes of a call.
        memory_limit: limit of weights, activations, inputs and outputs together in bytes; None for no limit.
        pareto: two quantities whose Pareto front is computed in addition; None for no front.
        selector: name of the solver.
        plans: number of plans, the best one included, that are compiled and measured whole after layers were timed in
            the network, if their predicted times differ by less than the tables err.
        shapes: input name to the shape that binds its dynamic dimensions.
        bindings: input name to its fixed value: a number or several, in row-major order. The module does not take it.
        pins: restrictions of layers to routines.
        database: file of the tuning database.
        external_weights: file for the weights; None writes them into the module.
        dump_directory: folder for the module after every pass, with one for each of several plans or sizes, or None.
        jobs: number of worker processes for compiling.
        search: whether all variants are measured, or those that cost models predict to be fast.
        time_budget: seconds that a compilation should take; with 0 no layer is measured, and the plan is predicted;
            None for no limit.
        tune_until: fraction of the network's time; tuning ends when what is left to measure promises to save less.
            With 0 each kind of layer is measured; None for 0.01 without a time budget, where the package holds times
            of nearly all variants, and else 0.
        vs_stock: whether the model that IREE compiles whole is built and timed however hopeless it is.
        workers: Dask scheduler whose workers measure, by address (``tcp://host:8786``) or file; None for this machine.
        tune_for: the kind of machine that the module is tuned for, if the workers are of several: the beginning of its
            digits, or a part of its description.
        fixes_threads: whether sessions shall have at most ``threads``, and workers measure with as many: without it
            workers measure with one for each physical core, a module may be faster with efficiency cores, too, and a
            small network may be planned for one thread.
        names_threads: whether the module says that it runs with ``threads``, which sessions start then by default.
        heeds_permissions: whether layers that the model permits to round may be rounded if ``precision`` is f32.
        states: outputs and the inputs that are the same storage across calls, such as ``present.*=past_key_values.*``;
            a value in ``bindings`` is what such an input begins with.
        finds_states: whether inputs and outputs are states too that exporters name so, on one device of this machine.
    """

    target: Target = field(default_factory=lambda: Target.create(CPU))
    threads: int = field(default_factory=lambda: device_settings().threads)
    max_error: float | None = None
    precision: Precision = Precision.F32
    weight_blocks: tuple[int, ...] = (USUAL_BLOCK,)
    double: Double = Double.F32
    calibration: Path | None = None
    calibration_method: CalibrationMethod = CalibrationMethod.MIN_MAX
    error_measure: ErrorMeasure = RELATIVE
    objective: Objective = Objective.LATENCY
    memory_limit: int | None = None
    pareto: tuple[Quantity, Quantity] | None = None
    selector: str = auto.NAME
    plans: int = field(default_factory=lambda: DEFAULT_PLANS)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    bindings: Bindings = field(default_factory=dict)
    pins: tuple[Pin, ...] = ()
    database: Path = field(default_factory=default_database)
    external_weights: Path | None = None
    dump_directory: Path | None = None
    jobs: int = field(default_factory=physical_cores)
    search: Search = Search.MODEL
    time_budget: float | None = None
    tune_until: float | None = None
    vs_stock: bool = False
    workers: str | None = None
    tune_for: str | None = None
    fixes_threads: bool = False
    names_threads: bool = False
    heeds_permissions: bool = True
    states: tuple[StatePattern, ...] = ()
    finds_states: bool = True

    def __post_init__(self) -> None:
        """Check all fields, and add the threads, and extensions that this machine withholds, to the target.

        Raises:
            UsageError: if a field is not valid, in which case the message names the field and its valid values; if the
                constraints are not valid, or the selector does not support them.
        """
        for name, setting in SETTINGS.items():
            value = getattr(self, name)
            if value is not None or name not in _OPTIONAL:
                object.__setattr__(self, name, setting.read(name, value))
        withheld = unusable(MATRIX_FEATURES) if self.target.is_this_cpu else self.target.withheld
        others = tuple(replace(other, threads=self.threads) for other in self.target.others)
        target = replace(self.target, threads=self.threads, withheld=withheld, others=others)
        object.__setattr__(self, "target", target)
        for part in self.objective.parts:
            check_solver(self.selector, part, self.limits)
        if self.precision is not Precision.F32:
            # The search for plans within the error budget limits the error.
            check_solver(self.selector, self.objective.parts[0], replace(self.limits, error=0.0))
        if self.target.others and Quantity.MEMORY in self.quantities:
            raise UsageError(
                "memory is counted on the CPU alone: it cannot be limited or minimised for several devices"
            )
        self._check_workers()
        self._check_measures()
        if self.calibration_method is not CalibrationMethod.MIN_MAX:
            check_ranges_are_used("calibration_method", self.calibration_method, self.precision)
        if self.precision is Precision.TF32 and not self.precision.types_on(target):
            raise UsageError(
                f"--precision tf32 is a type of NVIDIA's tensor cores, and {target} has no kernels for them; "
                f"name another precision, or --target cuda with --arch {' or '.join(ARCHITECTURES)}"
            )
        if self.states and (self.target.others or self.workers is not None):
            raise UsageError(
                "states are kept on one device of this machine only; name one target and no workers, or leave --state "
                f"{self.states[0]} out"
            )
        if twice := sorted(self.shapes.keys() & self.bindings.keys()):
            raise UsageError(
                f"input '{twice[0]}' is given both a shape and a value to be bound to; leave its shape out"
            )

    def for_plan(self, threads: int, precision: Precision) -> CompileConfig:
        """The same settings for a plan that was made with others, whose ranges are known."""
        method = self.calibration_method if precision.quantises_values else CalibrationMethod.MIN_MAX
        return replace(self, threads=threads, precision=precision, calibration_method=method)

    @property
    def until(self) -> float | None:
        """As ``tune_until``. Of several devices each kind of layer is measured: what is wrong in a plan with guesses is
        looked for on one."""
        return 0.0 if self.tune_until is None and self.target.others else self.tune_until

    @property
    def fixed(self) -> Bindings:
        """Input name to fixed value, without those that states begin with."""
        return {
            name: binding for name, binding in self.bindings.items() if not any(one.reads(name) for one in self.states)
        }

    def without_states(self, where: str) -> CompileConfig:
        """The same settings for a file that keeps no states.

        Args:
            where: says which file that is.

        Raises:
            UsageError: if there are declared ones.
        """
        if self.states:
            raise UsageError(f"states are not kept in a file {where} yet; leave --state {self.states[0]} out")
        return replace(self, finds_states=False)

    def _check_workers(self) -> None:
        if self.tune_for is not None and self.workers is None:
            raise UsageError(
                "--tune-for names a kind of the workers' machines, and there are no workers; name their scheduler by "
                "--workers"
            )
        if self.workers is not None and self.target.others:
            raise UsageError("several devices are tuned where they are; leave the workers out, or name one device")
        if self.workers is not None and Quantity.COLD in self.quantities:
            raise UsageError("the first inference reads a disk, and that of workers is not measured; tune for latency")

    def _check_measures(self) -> None:
        """Make sure that nothing is asked about measuring where nothing is measured."""
        usual = dict(zip(MEASURING, (None, Search.MODEL, DEFAULT_PLANS), strict=True))
        asked = [SETTINGS[name].option for name, value in usual.items() if getattr(self, name) != value]
        if self.time_budget == 0 and asked:
            raise UsageError(
                f"--fast, as --time-budget 0, measures nothing, and {asked[0]} is about what is measured; leave one of "
                "them out"
            )

    def used_files(self, outputs: Iterable[Path]) -> list[tuple[str, Path]]:
        """The files that a compilation uses beside the model, and what each is.

        Args:
            outputs: what is written; of a folder of samples those files count that have the same name.
        """
        used = [("the tuning database", path) for path in database_files(self.database)]
        if self.workers is not None:
            used.append(("the file of the scheduler", Path(self.workers)))
        if self.error_measure.path is not None:
            used.append(("the file of the error measure", self.error_measure.path))
        if self.calibration is not None:
            beside = (self.calibration / output.name for output in outputs)
            samples = [self.calibration, *(path for path in beside if path.suffix in SAMPLE_SUFFIXES)]
            used += [("samples for calibration", path) for path in samples if path.is_file()]
        return used

    @property
    def allowed_error(self) -> float:
        """The largest allowed error of the outputs, before the model is known."""
        return self.error_budget.accepted

    @property
    def error_budget(self) -> ErrorBudget:
        """The error budget of the outputs, before the model is known."""
        narrow = self.precision is not Precision.F32
        is_of_tokens = narrow and self.error_measure.kind is MeasureKind.TOKENS
        usual = LOW_PRECISION_MAX_ERROR if is_of_tokens else self.precision.usual_error
        return ErrorBudget(self.error_measure, usual, self.max_error, narrow)

    @property
    def importing(self) -> ImportPolicy:
        """Settings of the import."""
        finds = self.finds_states and not self.target.others and self.workers is None
        return ImportPolicy(
            self.target,
            self.shapes,
            self.bindings,
            self.pins,
            self.dump_directory,
            double=self.double,
            states=StatePolicy(self.states, finds),
        )

    @property
    def calibrating(self) -> CalibrationPolicy:
        """Settings of the samples and the calibration."""
        where = self.database, self.threads
        return CalibrationPolicy(
            self.calibration, self.precision, self.target, self.calibration_method, *where, self.weight_blocks
        )

    @property
    def planning(self) -> PlanPolicy:
        """Constraints on plans, and the objective."""
        return PlanPolicy(
            target=self.target,
            precision=self.precision,
            objective=Objective.LATENCY if self.objective is Objective.REGRET else self.objective,
            limits=self.limits,
            quantities=self.quantities,
            pins=self.pins,
            selector=self.selector,
            plans=self.plans,
            blocks=self.weight_blocks,
            most_threads=threads_on_all_cores() if self.has_usual_threads else self.threads,
            is_fair=self.objective is Objective.REGRET,
            workers=self.threads if self.names_threads else None,
        )

    @property
    def has_usual_threads(self) -> bool:
        """Whether nobody asked for a number of threads, so that networks may be planned for others."""
        return not self.fixes_threads and self.workers is None and self.threads == default_threads()

    @property
    def header(self) -> ModuleHeader:
        """Properties of modules that do not depend on the plan."""
        return ModuleHeader(self.target, self.external_weights)

    @property
    def limits(self) -> Limits:
        """The limits on every plan."""
        return Limits(memory=self.memory_limit)

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """The quantities that are minimised or limited."""
        objectives = (Quantity(part.value) for part in self.objective.parts)
        wanted = {*objectives, *self.limits.bounds, *(self.pareto or ())}
        return tuple(quantity for quantity in Quantity if quantity in wanted)


_OPTIONAL = frozenset(setting.name for setting in fields(CompileConfig) if setting.default is None)
