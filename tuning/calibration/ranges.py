"""The 8-bit ranges of a network's values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sartor.codegen.ir.layer import ValueRef
from sartor.tuning.calibration.quantised_range import QuantisedRange


@dataclass(frozen=True)
class Ranges:
    """The ``int8`` ranges of the values on a network's edges. Every range represents zero exactly.

    Attributes:
        values: by network input (``ValueRef(None, index)``) and layer's result. Results of a fusion are listed under
            its name too.
    """

    values: Mapping[ValueRef, QuantisedRange] = field(default_factory=dict)

    def of(self, value: ValueRef) -> QuantisedRange | None:
        """The range of a value; None if ONNX has no such tensor, or it does not hold real numbers."""
        return self.values.get(value)
