"""Tells defects of rewrites from damaged models: both raise the same exceptions."""

from __future__ import annotations

from onnx import ModelProto

from sartor.errors import InternalError, UnsupportedModelError
from sartor.onnx_model.graphs.graph import MalformedError
from sartor.onnx_model.graphs.held_data import serialised
from sartor.runtime.reference import OnnxRuntimeReference


def own_fault(error: MalformedError, model: ModelProto) -> InternalError | None:
    """The error to raise in place of ``error``, if the model is sound; None if it is damaged.

    Args:
        error: what a rewrite raised.
        model: as it was loaded. It is sound if ONNX Runtime loads it.
    """
    if error.__cause__ is None or isinstance(error.__cause__, MemoryError):
        return None
    try:
        OnnxRuntimeReference(b"".join(serialised(model)), threads=1, optimises=False)
    except UnsupportedModelError:
        return None
    return InternalError.of(error.__cause__, "the model was rewritten")
