"""Reads the trees of ``TreeEnsembleRegressor``, ``TreeEnsembleClassifier`` and ``TreeEnsemble``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sartor.onnx_model.graphs.graph import Array
from sartor.onnx_model.graphs.tensor_data import to_array
from sartor.onnx_model.rewrites.operator_sets.classical.trees.comparisons import Comparison, Nodes
from sartor.onnx_model.rewrites.operator_sets.classical.trees.forest import Forest

_PREFIX = "BRANCH_"
_LEAF = "LEAF"
# The modes of TreeEnsemble by number.
_MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")


@dataclass(frozen=True)
class _Weights:
    """What leaves add: for each entry its leaf, target and number."""

    leaves: Sequence[int]
    targets: Sequence[int]
    numbers: Array
    count: int


def numbers(settings: Mapping[str, Any], name: str, dtype: Any) -> Array:
    """A list of numbers of a node that may be written as floats or as a tensor; empty if there is none."""
    tensor = settings.get(f"{name}_as_tensor")
    if tensor is not None:
        return to_array(tensor).reshape(-1).astype(dtype)
    return np.asarray(settings.get(name, []), np.float32).astype(dtype)


def listed_trees(settings: Mapping[str, Any], prefix: str, targets: int, dtype: Any) -> Forest:
    """The trees of the operators that list leaves among the nodes.

    Args:
        found: attributes.
        prefix: of the attributes of weights, ``target`` or ``class``.
        targets: how many targets or classes there are.
        dtype: of thresholds and values.

    Raises:
        KeyError, ValueError, IndexError: the attributes do not fit each other.
    """
    names = list(zip(settings["nodes_treeids"], settings["nodes_nodeids"], strict=True))
    places = {name: place for place, name in enumerate(names)}
    if len(places) < len(names):
        raise ValueError("two nodes have the same name")
    thresholds, modes = numbers(settings, "nodes_values", dtype), settings["nodes_modes"]
    missing = settings.get("nodes_missing_value_tracks_true") or [0] * len(names)
    nodes, leaves = Nodes(following=len(names)), []
    for place, (tree, _) in enumerate(names):
        if modes[place] == _LEAF:
            leaves.append(place)
            continue
        true, false = (places[tree, settings[f"nodes_{side}nodeids"][place]] for side in ("true", "false"))
        feature, mode = settings["nodes_featureids"][place], modes[place].removeprefix(_PREFIX)
        nodes.add(place, Comparison(mode, feature, thresholds[place], bool(missing[place]), true, false))
    roots = [place for place, (tree, _) in enumerate(names) if place == 0 or names[place - 1][0] != tree]
    pairs = zip(settings[f"{prefix}_treeids"], settings[f"{prefix}_nodeids"], strict=True)
    given = [places[pair] for pair in pairs]
    weights = _Weights(given, settings[f"{prefix}_ids"], numbers(settings, f"{prefix}_weights", dtype), targets)
    return _forest(nodes, leaves, roots, weights, dtype)


def separate_leaves(settings: Mapping[str, Any]) -> Forest:
    """The trees of ``TreeEnsemble``, whose leaves are apart from the other nodes.

    Raises:
        KeyError, ValueError, IndexError: the attributes do not fit each other.
    """
    splits, modes = to_array(settings["nodes_splits"]).reshape(-1), to_array(settings["nodes_modes"]).reshape(-1)
    count, dtype = len(modes), splits.dtype.type
    missing = settings.get("nodes_missing_value_tracks_true") or [0] * count
    leaves = len(settings["leaf_targetids"])
    nodes = Nodes(following=count + leaves)
    members = _members(settings.get("membership_values"), dtype)
    for place in range(count):
        mode = _MODES[modes[place]]
        true, false = (
            settings[f"nodes_{side}nodeids"][place] + (count if settings[f"nodes_{side}leafs"][place] else 0)
            for side in ("true", "false")
        )
        allowed = next(members) if mode == "MEMBER" else ()
        feature, is_missing = settings["nodes_featureids"][place], bool(missing[place])
        nodes.add(place, Comparison(mode, feature, splits[place], is_missing, true, false, allowed))
    weights = _Weights(
        range(count, count + leaves),
        settings["leaf_targetids"],
        to_array(settings["leaf_weights"]).reshape(-1),
        settings["n_targets"],
    )
    return _forest(nodes, range(count, count + leaves), settings["tree_roots"], weights, dtype)


def _members(tensor: Any, dtype: Any) -> Any:
    """Yield the sets of values, which NaN separates, in the order of the nodes that read them."""
    current: list[Any] = []
    for value in () if tensor is None else to_array(tensor).reshape(-1).astype(dtype):
        if np.isnan(value):
            yield tuple(current)
            current = []
        else:
            current.append(value)
    if current:
        yield tuple(current)


def _forest(nodes: Nodes, leaves: Sequence[int], roots: Sequence[int], weights: _Weights, dtype: Any) -> Forest:
    count = nodes.following
    own = np.arange(count)
    features, when_true, when_false = np.zeros(count, np.int64), own.copy(), own.copy()
    thresholds, nan_is_true = np.zeros(count, dtype), np.zeros(count, bool)
    for place, node in nodes.rows.items():
        features[place], thresholds[place] = node.feature, node.threshold
        nan_is_true[place] = node.nan_is_true
        when_true[place], when_false[place] = node.when_true, node.when_false
    if set(range(count)) != {*nodes.rows, *leaves} or min(when_true.min(), when_false.min(), *roots) < 0:
        raise ValueError("a node is neither a leaf nor a comparison")
    by_leaf: dict[tuple[int, int], Any] = defaultdict(dtype)
    for leaf, target, number in zip(weights.leaves, weights.targets, weights.numbers, strict=True):
        by_leaf[leaf, target] += dtype(number)
    values, has_value = np.zeros((count, weights.count), dtype), np.zeros((count, weights.count), bool)
    for entry, number in by_leaf.items():
        values[entry], has_value[entry] = number, True
    return Forest(features, thresholds, nan_is_true, when_true, when_false, np.asarray(roots), values, has_value)
