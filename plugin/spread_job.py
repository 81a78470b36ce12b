"""Worker side of ``near_ties`` for a model that was not imported: its file is not trusted."""

from __future__ import annotations

from pathlib import Path

from sartor.errors import SartorError
from sartor.front_job import Refusal
from sartor.near_ties import tie_spread
from sartor.onnx_model.held_data import serialised
from sartor.onnx_model.load import load_model
from sartor.onnx_model.prepare import prepare
from sartor.onnx_model.quantised_values import take_out_quantisation
from sartor.onnx_model.shapes import Shapes
from sartor.tuning.workers import WorkerPool
from sartor.worker_calls import call

_JOB = "sartor.spread_job:spread_of_file"
_STEP = "running ONNX Runtime"
_TIMEOUT = 900.0


def spread_in_worker(pool: WorkerPool, path: Path, shapes: Shapes) -> float:
    """The ``tie_spread`` of a model's file; ``shapes`` bind its free dimensions.

    Raises:
        UsageError, UnsupportedModelError: as ``prepare``.
        CompileError: if the worker dies.
    """
    found: float = call(pool, _JOB, {"path": path.resolve(), "shapes": dict(shapes)}, _STEP, _TIMEOUT)
    return found


def spread_of_file(path: Path, shapes: Shapes) -> float | Refusal:
    """Worker side of ``spread_in_worker``."""
    try:
        model = prepare(load_model(path), shapes).model
        take_out_quantisation(model)
        return tie_spread(path, b"".join(serialised(model)))
    except SartorError as error:
        return Refusal(error)
