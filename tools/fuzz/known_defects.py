"""Known failures: defects of IREE or ONNX Runtime, with minimal models in docs/records/iree-notes.md, and others."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tools.fuzz.failures import Failure


@dataclass(frozen=True)
class Known:
    """A defect of IREE or ONNX Runtime.

    Attributes:
        name: short name.
        reason: the cause of the failure.
        kind: the kind of the failure, as in ``Failure``.
        message: regular expression that matches a part of the failure's message.
        holds: whether the defect can affect the failure's model and plan.
    """

    name: str
    reason: str
    kind: str
    message: str
    holds: Callable[[Failure], bool]


_CUTS = {"Slice", "Split"}
_VARIANCE = {"Sub", "Pow", "ReduceMean", "Add", "Sqrt", "Div"}
_GATHERS = {"CumSum", "Gather", "GatherElements", "Pad"}
"""Operators that gather by constant indices: Pad where it repeats or mirrors elements, CumSum if it runs back."""

KNOWN: tuple[Known, ...] = (
    Known(
        "unsplit convolution is not distributed",
        "IREE gives the code of some small convolutions no workgroups; alone as a layer such a convolution compiles",
        "failed",
        "write affecting operations on global resources are restricted to workgroup distributed contexts",
        lambda failure: failure.forced is None and "Conv" in failure.operators,
    ),
    Known(
        "gather from every n-th element",
        "IREE does not lower vector.gather from memory whose innermost stride is not 1, a cut along the last axis",
        "failed",
        r"LLVM Translation failed for operation: builtin\.unrealized_conversion_cast.*\(i64\) -> index",
        lambda failure: _CUTS & set(failure.operators) != set() and _GATHERS & set(failure.operators) != set(),
    ),
    Known(
        "unsplit transposed convolution after a convolution",
        "IREE computes past the end of memory where both are compiled at once; as layers of a plan they are right",
        "wrong",
        "error",
        lambda failure: failure.forced is None and failure.operators == ["Conv", "ConvTranspose"],
    ),
    Known(
        "difference of nearly equal values",
        "no defect: the arctangent of a small number less the number keeps no digit, in ONNX Runtime as in IREE",
        "wrong",
        "relative error",
        lambda failure: failure.operators == ["Atan", "Sub"],
    ),
    Known(
        "divisor that 8 bits round to zero",
        "no defect: a small variance stored in 8 bits beside large ones is 0; a compilation measures what that does",
        "wrong",
        "error inf",
        lambda failure: failure.setting.precision.quantises_values and set(failure.operators) >= _VARIANCE,
    ),
)


def known(failure: Failure) -> Known | None:
    """Return the known defect that explains a failure, or None."""
    for each in KNOWN:
        if each.kind == failure.kind and re.search(each.message, failure.message, re.DOTALL) and each.holds(failure):
            return each
    return None
