"""Known failures caused by defects of IREE or ONNX Runtime; docs/iree-notes.md has a minimal model of each."""

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


KNOWN: tuple[Known, ...] = (
    Known(
        "unsplit model does not compile",
        "IREE's lowering of unsplit models fails for some models; Sartor then ships a plan of layers",
        "failed",
        "IREE rejected the module",
        lambda failure: failure.forced is None,
    ),
)


def known(failure: Failure) -> Known | None:
    """Return the known defect that explains a failure, or None."""
    for each in KNOWN:
        if each.kind == failure.kind and re.search(each.message, failure.message) and each.holds(failure):
            return each
    return None
