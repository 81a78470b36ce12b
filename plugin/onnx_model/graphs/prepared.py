"""The prepared model: the result of reading and rewriting an ONNX file, as the importer takes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto

from sartor.onnx_model.graphs.walk import names_read, nodes, subgraphs
from sartor.runtime.driver.bound_input import BoundInput

# In front of an output's name.
_REFERENCE = "sartor.reference:"

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


@dataclass(frozen=True)
class PreparedModel:
    """A checked, self-contained model of opset 17 or newer, with static shapes where inference finds them.

    Attributes:
        model: nodes are sorted and have unique names.
        inputs, outputs: in the order of the original model.
        bound: the original model's inputs that have a fixed value, which are not in ``inputs``.
        changes: of the rewrites that changed something, in the order they ran.
        described: the original model's nodes by name, as messages describe them.
    """

    model: ModelProto
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    changes: tuple[Change, ...]
    bound: tuple[BoundInput, ...] = ()
    described: Mapping[str, str] = field(default_factory=dict)


def prepared_model(prepared: Path | bytes) -> ModelProto:
    """Parse a serialised prepared model, from its file or its bytes."""
    model: ModelProto = ModelProto.FromString(prepared if isinstance(prepared, bytes) else prepared.read_bytes())
    return model


def mark_as_reference(model: ModelProto, is_free: Callable[[NodeProto], bool]) -> None:
    """Record in the model's metadata which results are compared with its own, not with those of the user's file.

    These are the outputs that depend on nodes whose results are free: ONNX Runtime gives them in an order of its own,
    or rounds them as the file allows. The nodes of the main graph must be sorted.
    """
    free = set[str]()
    for node in model.graph.node:
        inside = (each for body in subgraphs(node) for each in nodes(body))
        if is_free(node) or any(map(is_free, inside)) or not free.isdisjoint(names_read(node)):
            free.update(node.output)
    known = own_outputs(model)
    for value in model.graph.output:
        if value.name in free - known:
            model.metadata_props.add(key=f"{_REFERENCE}{value.name}")


def is_long(model: ModelProto) -> bool:
    """Whether a model has so many nodes that ONNX Runtime takes longer to choose layouts than to run it a few times."""
    return len(model.graph.node) >= _LONG


def forget_marks(model: ModelProto) -> None:
    """Remove what ``mark_as_reference`` recorded: a user's file may be a prepared model, or say so of itself."""
    kept = [each for each in model.metadata_props if not each.key.startswith(_REFERENCE)]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)


def own_outputs(model: ModelProto) -> frozenset[str]:
    """Names of the outputs that ``mark_as_reference`` marked."""
    keys = (each.key for each in model.metadata_props)
    return frozenset(key.removeprefix(_REFERENCE) for key in keys if key.startswith(_REFERENCE))
