"""The 8-bit forms of a network's values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sartor.codegen.ir.layer import ValueRef
from sartor.tuning.calibration.quantised_range import QuantisedRange


@dataclass(frozen=True)
class Ranges:
    """How what layers hand on to each other lies in ``int8``; real zero is exact in every form.

    Attributes:
        values: by network input (``ValueRef(None, index)``) and layer's result; those of a fusion have its name too.
    """

    values: Mapping[ValueRef, QuantisedRange] = field(default_factory=dict)

    def of(self, value: ValueRef) -> QuantisedRange | None:
        """The form of a value; None where ONNX has no such tensor, or it holds no real numbers."""
        return self.values.get(value)
