"""What the steps of a compilation are told of its settings: to each the few values that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from sartor.codegen.ir.target import Target
from sartor.tuning.calibration.methods import CalibrationMethod
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.selection.problem.limits import Limits, Quantity
from sartor.tuning.selection.problem.pin import Pin

DEFAULT_MAX_ERROR = 1e-3
LOW_PRECISION_MAX_ERROR = 1e-2


class Precision(StrEnum):
    """The types in which routines may compute besides f32: none, one narrower type, or all."""

    F32 = "f32"
    BF16 = "bf16"
    F16 = "f16"
    INT8 = "int8"
    MIXED = "mixed"

    @property
    def types(self) -> tuple[str, ...]:
        """The narrower element types."""
        return _NARROWER[self]

    @property
    def usual_error(self) -> float:
        """The default bound on the relative error; a larger error is more than rounding explains."""
        return DEFAULT_MAX_ERROR if self is Precision.F32 else LOW_PRECISION_MAX_ERROR


_NARROWER = {
    Precision.F32: (),
    Precision.BF16: ("bf16",),
    Precision.F16: ("f16",),
    Precision.INT8: ("i8",),
    Precision.MIXED: ("bf16", "f16", "i8"),
}


class Search(StrEnum):
    """The way in which the variants to measure are selected."""

    MODEL = "model"
    FULL = "full"


@dataclass(frozen=True)
class ImportPolicy:
    """How a model becomes layers.

    Attributes:
        target: decides which layers are split further.
        shapes: input name to the shape that binds its dynamic dimensions.
        pins: each has to match a layer.
        dump_directory: where to write the module after every pass, or None.
    """

    target: Target
    shapes: Mapping[str, tuple[int, ...]]
    pins: tuple[Pin, ...]
    dump_directory: Path | None


@dataclass(frozen=True)
class CalibrationPolicy:
    """On which samples errors are measured and ranges found, and how.

    Attributes:
        samples: file or directory; None for random values.
        precision: what routines may compute in.
        method: how 8-bit forms are found.
        database: file of the tuning database, beside which ranges are kept.
        threads: to run the model with.
    """

    samples: Path | None
    precision: Precision
    method: CalibrationMethod
    database: Path
    threads: int


@dataclass(frozen=True)
class PlanPolicy:
    """What plans must keep to, and what makes one better than another.

    Attributes:
        target: device and architecture.
        precision: what routines may compute in.
        objective: what is minimised.
        limits: what every plan must keep to.
        quantities: what plans are compared by, or bounded in.
        pins: restrictions of layers to routines.
        selector: which solver chooses.
        plans: how many of the best plans are compiled whole.
    """

    target: Target
    precision: Precision
    objective: Objective
    limits: Limits
    quantities: tuple[Quantity, ...]
    pins: tuple[Pin, ...]
    selector: str
    plans: int


@dataclass(frozen=True)
class ModuleHeader:
    """What a module says of itself, whatever was selected.

    Attributes:
        target: device and architecture.
        external_weights: where its weights go if not into the module.
    """

    target: Target
    external_weights: Path | None = None
