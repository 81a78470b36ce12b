"""Draws weights for files of which they were left out."""

from __future__ import annotations

import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, helper, numpy_helper


def with_drawn_weights(path: Path) -> ModelProto:
    """The model of a file with weights drawn for the tensors that have none, seeded by their names."""
    model = onnx.load_model(path)
    for tensor in model.graph.initializer:
        kind, count = helper.tensor_dtype_to_np_dtype(tensor.data_type), math.prod(tensor.dims)
        if tensor.raw_data or tensor.float_data or tensor.int32_data or tensor.int64_data or not count:
            continue
        values: np.ndarray[Any, Any]
        random = np.random.default_rng(zlib.crc32(tensor.name.encode()))
        if kind.kind in "iu":
            limits = np.iinfo(kind)
            values = random.integers(limits.min, limits.max + 1, list(tensor.dims))
        else:
            values = random.standard_normal(list(tensor.dims)) / math.sqrt(tensor.dims[0])
        tensor.CopyFrom(numpy_helper.from_array(values.astype(kind), tensor.name))
    return model
