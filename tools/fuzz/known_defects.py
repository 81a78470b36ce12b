"""Failures that are known and no fault of ours, each with its reason and a minimal model (docs/iree-notes.md)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tools.fuzz.failures import Failure


@dataclass(frozen=True)
class Known:
    """A defect of IREE or ONNX Runtime.

    Attributes:
        name: short.
        reason: what goes wrong there.
        kind: as in ``Failure``.
        message: pattern that is found in the failure's message.
        holds: whether the model and the plan are of the kind that it befalls.
    """

    name: str
    reason: str
    kind: str
    message: str
    holds: Callable[[Failure], bool]


KNOWN: tuple[Known, ...] = (
    Known(
        "unsplit model does not compile",
        "IREE's own lowering of whole models fails on some; a compilation that meets one ships a plan of layers",
        "failed",
        "IREE rejected the module",
        lambda failure: failure.forced is None,
    ),
    Known(
        "ONNX Runtime crashes while it optimises",
        "it dies of MatMul in f16 of a part of a Split whose operand is transposed, before anything is compared",
        "crashed",
        "in _create_inference_session",
        lambda failure: {"MatMul", "Split", "Transpose"} <= set(failure.operators),
    ),
)


def known(failure: Failure) -> Known | None:
    """The known defect that a failure is; None if it is a finding."""
    for each in KNOWN:
        if each.kind == failure.kind and re.search(each.message, failure.message) and each.holds(failure):
            return each
    return None
