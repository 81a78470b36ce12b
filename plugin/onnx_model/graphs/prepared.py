"""The prepared model: the result of reading and rewriting an ONNX file, as the importer takes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto

from sartor.runtime.driver.bound_input import BoundInput


@dataclass(frozen=True)
class TensorInfo:
    """An input or output: its ONNX name, static shape and element type as callers pass it.

    That is the type that the loaded model declares; the prepared one may store it in another of the same size.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class Change:
    """The names of what one rewrite changed: ONNX nodes, or initialisers (weights), or inputs (shapes)."""

    rewrite: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class PreparedModel:
    """A checked, self-contained model of opset 17 or newer, with static shapes where inference finds them.

    Attributes:
        model: nodes are sorted and have unique names.
        inputs, outputs: in the order of the original model.
        bound: the original model's inputs that have a fixed value, which are not in ``inputs``.
        changes: of the rewrites that changed something, in the order they ran.
    """

    model: ModelProto
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    changes: tuple[Change, ...]
    bound: tuple[BoundInput, ...] = ()


def prepared_model(prepared: Path | bytes) -> ModelProto:
    """Parse a serialised prepared model, from its file or its bytes."""
    model: ModelProto = ModelProto.FromString(prepared if isinstance(prepared, bytes) else prepared.read_bytes())
    return model
