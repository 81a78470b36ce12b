"""Refuses ensembles of trees that ONNX Runtime computes otherwise than ONNX defines them, each with a way out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.rewrites.operator_sets.classical.trees.forest import Forest
from sartor.onnx_model.rewrites.operator_sets.classical.trees.reading import numbers


def refuse_repeated(emit: Emitter, found: Mapping[str, Any], prefix: str) -> None:
    """Refuse leaves that have several values for a target, where ONNX Runtime does not add them up."""
    entries = [*zip(*(found[f"{prefix}_{name}"] for name in ("treeids", "nodeids", "ids")), strict=True)]
    if len(set(entries)) < len(entries):
        raise UnsupportedModelError(
            f"{describe_node(emit.node)} has several values of a leaf for one target, of which ONNX Runtime 1.32 takes "
            "one; list their sum in their place"
        )


def refuse_partial(emit: Emitter, forest: Forest, base: Array) -> None:
    """Refuse base values of several targets that ONNX Runtime adds in some rows alone: where a leaf has a value."""
    if len(base) > 1 and not all(forest.is_always_given(int(target)) for target in np.flatnonzero(base)):
        raise UnsupportedModelError(
            f"{describe_node(emit.node)} has a base value of a target for which leaves of each tree have no value, "
            "where ONNX Runtime 1.32 gives 0; give each leaf a value for each target, if need be 0"
        )


def refuse_single(emit: Emitter, found: Mapping[str, Any]) -> None:
    """Refuse what ONNX Runtime does not compute, or computes otherwise, for a single class."""
    if found.get("classlabels_strings"):
        raise UnsupportedModelError(
            f"{describe_node(emit.node)} has a text as its only class, which ends ONNX Runtime's process; train it "
            "with an integer as label"
        )
    if len(numbers(found, "base_values", np.float32)) > 1:
        raise UnsupportedModelError(
            f"{describe_node(emit.node)} has one class and several base values; give it one base value"
        )
