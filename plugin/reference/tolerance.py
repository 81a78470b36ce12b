"""The bound on the error of a correct module: the user's, or that of rounding in the model's own types."""

from __future__ import annotations

from onnx import ModelProto

from sartor.onnx_model.graphs.halves import half_types

MOST_BY_ITSELF = 1e-2
"""The largest bound that comes about without the user's; beyond it the layers are compared one by one."""

# The error may be larger on samples other than the measured ones, if their outputs are smaller.
_OTHER_SAMPLES = 1.5


def tolerance(model: ModelProto, max_error: float, tie_spread: float = 0.0) -> float:
    """The larger of the usual bound and the error by rounding in the model's own element types, within a limit.

    Args:
        model: the original or the prepared one; its subgraphs and functions count too.
        max_error: the usual bound on the relative error.
        tie_spread: result of ``tie_spread`` for a model that rounds to integers.
    """
    rounding = MOST_BY_ITSELF if has_half_precision(model) else _OTHER_SAMPLES * tie_spread
    return max(max_error, min(rounding, MOST_BY_ITSELF))


def with_permitted(max_error: float, permitted: float) -> float:
    """The usual bound, or the error by all the rounding that the model permits if that is larger, within a limit."""
    return max(max_error, min(_OTHER_SAMPLES * permitted, MOST_BY_ITSELF))


def has_half_precision(model: ModelProto) -> bool:
    """Whether any value of a model is of half precision, or was before it was widened."""
    return bool(half_types(model))
