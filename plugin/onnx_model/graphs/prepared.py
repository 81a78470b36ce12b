"""The prepared model: the result of reading and rewriting an ONNX file, as the importer takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto

from sartor.onnx_model.graphs.mapped_data import mapped_model
from sartor.runtime.driver.bound_input import BoundInput
from sartor.runtime.driver.noise import Noise

# At 10,000 nodes a session takes 2.5 s, and 1.1 s without layouts.
_LONG = 3000


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

    def __str__(self) -> str:
        return f"{self.rewrite}: {', '.join(self.names)}"


@dataclass(frozen=True)
class PreparedModel:
    """A checked, self-contained model of opset 17 or newer, with static shapes where inference finds them.

    Attributes:
        model: nodes are sorted and have unique names.
        inputs, outputs: in the order of the original model.
        bound: the original model's inputs that have a fixed value, which are not in ``inputs``.
        changes: of the rewrites that changed something, in the order they ran.
        described: the original model's nodes by name, as messages describe them.
        noise: the inputs that stand for random operators.
    """

    model: ModelProto
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    changes: tuple[Change, ...]
    bound: tuple[BoundInput, ...] = ()
    described: Mapping[str, str] = field(default_factory=dict)
    noise: tuple[Noise, ...] = ()


def prepared_model(prepared: Path | bytes) -> ModelProto:
    """Parse a serialised prepared model, from its bytes or its file, in which the weights of a large one stay."""
    if isinstance(prepared, Path):
        return mapped_model(prepared)
    model: ModelProto = ModelProto.FromString(prepared)
    return model


def is_long(model: ModelProto) -> bool:
    """Whether a model has so many nodes that ONNX Runtime takes longer to choose layouts than to run it a few times."""
    return len(model.graph.node) >= _LONG
