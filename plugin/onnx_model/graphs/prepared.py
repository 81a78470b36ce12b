"""What the ONNX front end hands to the importer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto


@dataclass(frozen=True)
class TensorInfo:
    """An input or output of the model."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class Change:
    """What one rewrite did: the ONNX nodes (for weights: initialisers; for shapes: inputs) that it changed."""

    rewrite: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class PreparedModel:
    """A checked, self-contained model of opset 17 or newer with static shapes where they can be known.

    Attributes:
        model: nodes are sorted and have unique names.
        inputs, outputs: in the order of the original model.
        changes: rewrites that changed something, in the order they ran.
    """

    model: ModelProto
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    changes: tuple[Change, ...]


def prepared_model(prepared: Path | bytes) -> ModelProto:
    """The prepared model that a front end stored."""
    model: ModelProto = ModelProto.FromString(prepared if isinstance(prepared, bytes) else prepared.read_bytes())
    return model
