"""Inputs to run a model on when the user has given none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import ModelProto

from sartor.onnx_model.graph import Array, GraphEditor, attributes, optional_input, static_shape
from sartor.onnx_model.tensor_data import to_array  # noqa: F401


def sample_inputs(model: ModelProto, seed: int) -> dict[str, Array]:
    raise NotImplementedError
