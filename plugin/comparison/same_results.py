"""Whether a module and an ONNX file are of one network, as far as the results on one set of inputs tell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sartor.runtime.driver.signature import Array

# Unrelated results of one magnitude differ by more than the norm of either. Rounding to 8 bits stays far below this.
_UNRELATED = 0.5


def difference_of(own: Sequence[Array], other: Sequence[Array]) -> str | None:
    """How a module's outputs differ from those of a model, if more than rounding explains; else None.

    Only outputs of real numbers are compared by value: few classes are often the same, and many indices are not.
    """
    if len(own) != len(other):
        return f"it has {len(other)} outputs and the module {len(own)}"
    for index, (ours, theirs) in enumerate(zip(own, other, strict=True)):
        if ours.shape != theirs.shape:
            return f"output {index} has the shape {list(theirs.shape)}, in the module {list(ours.shape)}"
        if ours.dtype.kind == theirs.dtype.kind == "f" and (off := _distance(ours, theirs)) > _UNRELATED:
            return f"output {index} is off by {off:.2g} of its norm"
    return None


def _distance(ours: Array, theirs: Array) -> float:
    """The norm of the difference by the norm of the other; 0 if that is zero or either is not finite."""
    right = theirs.astype(np.float64)
    norm, apart = float(np.linalg.norm(right)), float(np.linalg.norm(ours.astype(np.float64) - right))
    return apart / norm if norm > 0 and np.isfinite(apart / norm) else 0.0
