"""Policies: the parts of a compilation's settings that single steps need."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from sartor.codegen.ir.block_packing import FOUR_BITS, USUAL_BLOCK, block_of
from sartor.codegen.ir.target import Target
from sartor.runtime.driver.bound_input import Bindings
from sartor.settings.state_patterns import StatePattern
from sartor.tuning.calibration.methods import CalibrationMethod
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.selection.problem.limits import Limits, Quantity
from sartor.tuning.selection.problem.pin import Pin

DEFAULT_PLANS = 1
"""Number of plans that are compared whole: a further one costs builds and runs, and gained nothing where it was tried
(docs/records/tuning.md).
"""

DEFAULT_MAX_ERROR = 1e-3
LOW_PRECISION_MAX_ERROR = 1e-2


_TF32 = "tf32"


class Precision(StrEnum):
    """The types in which routines may compute besides f32: none, one narrower type, or all.

    With ``int8-weights`` they compute in f32, and filters may be stored in 8 bits; with ``int4-weights`` those of
    products may be stored in blocks of 4 bits; ``mixed-weights`` allows both. ``permitted`` is what f32 becomes for a
    model that permits to round what some of its layers multiply (``accuracy_level`` of ``MatMulNBits``), to 8 bits or
    16; with ``permitted-words`` to 16 alone.
    """

    F32 = "f32"
    PERMITTED = "permitted"
    PERMITTED_WORDS = "permitted-words"
    TF32 = "tf32"
    BF16 = "bf16"
    F16 = "f16"
    INT8 = "int8"
    INT8_WEIGHTS = "int8-weights"
    INT4_WEIGHTS = "int4-weights"
    MIXED_WEIGHTS = "mixed-weights"
    MIXED = "mixed"

    @property
    def types(self) -> tuple[str, ...]:
        """The narrower element types."""
        return _NARROWER[self]

    def types_on(self, target: Target) -> tuple[str, ...]:
        """The narrower element types for which a target may have routines."""
        return tuple(kind for kind in self.types if kind != _TF32 or target.multiplies_tf32)

    def types_in(self, blocks: Collection[int]) -> tuple[str, ...]:
        """The narrower element types, of those in blocks of 4 bits the ones with these numbers of rows."""
        return tuple(kind for kind in self.types if block_of(kind) in {None, *blocks})

    @property
    def is_permitted(self) -> bool:
        """Whether it is what f32 becomes for a model, which no user can name."""
        return self in (Precision.PERMITTED, Precision.PERMITTED_WORDS)

    @property
    def quantises_values(self) -> bool:
        """Whether what layers read and write may be rounded to 8 bits, and not filters alone."""
        return self in (Precision.INT8, Precision.MIXED)

    @property
    def quantises_filters(self) -> bool:
        """Whether filters may be rounded to 8 bits."""
        return self.quantises_values or self in (Precision.INT8_WEIGHTS, Precision.MIXED_WEIGHTS)

    @property
    def computes_in_f32(self) -> bool:
        """Whether nothing but weights is narrowed."""
        return self in (Precision.F32, Precision.INT8_WEIGHTS, Precision.INT4_WEIGHTS, Precision.MIXED_WEIGHTS)

    @property
    def usual_error(self) -> float:
        """The default bound on the relative error; a larger error is more than rounding explains."""
        return DEFAULT_MAX_ERROR if self is Precision.F32 or self.is_permitted else LOW_PRECISION_MAX_ERROR


_NARROWER = {
    Precision.F32: (),
    Precision.PERMITTED: ("i8",),
    Precision.PERMITTED_WORDS: ("i8",),
    Precision.TF32: ("tf32",),
    Precision.BF16: ("bf16",),
    Precision.F16: ("f16",),
    Precision.INT8: ("i8",),
    Precision.INT8_WEIGHTS: ("i8",),
    Precision.INT4_WEIGHTS: tuple(FOUR_BITS.values()),
    Precision.MIXED_WEIGHTS: ("i8", *FOUR_BITS.values()),
    Precision.MIXED: ("tf32", "bf16", "f16", "i8"),
}


class Double(StrEnum):
    """The type in which what a model declares as float64 is computed. Inputs and outputs are float64 in any case."""

    F32 = "f32"
    F64 = "f64"


class Search(StrEnum):
    """The way in which the variants to measure are selected."""

    MODEL = "model"
    FULL = "full"


@dataclass(frozen=True)
class StatePolicy:
    """Which inputs and outputs are states that the module keeps between calls.

    Attributes:
        declared: by the user.
        finds: whether those are states too that exporters name so.
    """

    declared: tuple[StatePattern, ...] = ()
    finds: bool = False


@dataclass(frozen=True)
class ImportPolicy:
    """Settings of the import of a model as layers.

    Attributes:
        target: decides which layers are split further.
        shapes: input name to the shape that binds its dynamic dimensions.
        bindings: input name to its fixed value.
        pins: restrictions of layers; each must match a layer.
        dump_directory: folder for the module after every pass, with one for each of several plans or sizes, or None.
        named: names of the layers of a plan that will be replayed, which may be children.
        exponents: of channels of tensors that are equalised before products; none unless samples were seen.
        double: the type in which float64 is computed.
        states: which inputs and outputs are states; by default none.
        simplifies: whether onnxslim simplifies the model.
        is_open: whether layers of any size are made of it and of imports with other sizes, which have the same nodes.
        has_layers: whether it is split into layers: files are compared with a model that is not.
    """

    target: Target
    shapes: Mapping[str, tuple[int, ...]]
    bindings: Bindings
    pins: tuple[Pin, ...]
    dump_directory: Path | None
    named: tuple[str, ...] = ()
    exponents: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    double: Double = Double.F32
    states: StatePolicy = field(default_factory=StatePolicy)
    simplifies: bool = True
    is_open: bool = False
    has_layers: bool = True


@dataclass(frozen=True)
class CalibrationPolicy:
    """Settings of the samples, of the errors measured on them, and of the ranges found on them.

    Attributes:
        samples: file or directory; None for random values.
        precision: types in which routines may compute.
        target: device and architecture.
        method: how 8-bit ranges are found.
        database: file of the tuning database, beside which ranges are stored.
        threads: number of threads for running the model.
        blocks: rows of a block that weights may be rounded in.
    """

    samples: Path | None
    precision: Precision
    target: Target
    method: CalibrationMethod
    database: Path
    threads: int
    blocks: tuple[int, ...] = (USUAL_BLOCK,)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The narrower element types whose rounding may have to be simulated."""
        on_target = self.precision.types_on(self.target)
        return tuple(kind for kind in self.precision.types_in(self.blocks) if kind in on_target)


@dataclass(frozen=True)
class PlanPolicy:
    """Constraints on plans, and the objective.

    Attributes:
        target: device and architecture.
        precision: types in which routines may compute.
        objective: what is minimised.
        limits: on every plan.
        quantities: those that are minimised or limited.
        pins: restrictions of layers to routines.
        selector: name of the solver.
        plans: number of plans that are compiled and measured whole if the tables cannot tell which is the fastest.
        blocks: rows of a block that weights may be rounded in.
        most_threads: with which networks are timed beside the number that layers are tuned for, if it is larger.
        is_fair: whether the worst ratio to the best plan for the sizes of a call counts, in place of the mean time.
        workers: number of threads that a module says it runs with, if its layers are tuned for no other; else None.
    """

    target: Target
    precision: Precision
    objective: Objective
    limits: Limits
    quantities: tuple[Quantity, ...]
    pins: tuple[Pin, ...]
    selector: str
    plans: int
    blocks: tuple[int, ...] = (USUAL_BLOCK,)
    most_threads: int = 0
    is_fair: bool = False
    workers: int | None = None


@dataclass(frozen=True)
class ModuleHeader:
    """Properties of a module that do not depend on the selected plan.

    Attributes:
        target: device and architecture.
        external_weights: file for the weights; None embeds them in the module.
    """

    target: Target
    external_weights: Path | None = None
