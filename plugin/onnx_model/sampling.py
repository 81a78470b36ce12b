"""Inputs to run a model on when the user has given none."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto

from sartor.onnx_model.graph import Array, static_shape
from onnx import helper


def sample_inputs(model: ModelProto, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    out = {}
    for v in model.graph.input:
        dt = helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type)
        shape = static_shape(v.type)
        out[v.name] = rng.standard_normal(shape).astype(dt) if dt.kind == "f" else rng.integers(0, 2, shape).astype(dt)
    return out
