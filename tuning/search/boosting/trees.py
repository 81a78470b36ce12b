"""Boosted trees as arrays.

Importing XGBoost takes a second where scikit-learn is installed, which it then imports too: longer than all predictions
of a compilation. What was trained before needs neither.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from xgboost import Booster


@dataclass(frozen=True)
class Trees:
    """The sum of trees. All arrays but ``roots`` have an element for each node; nodes of a tree are together.

    Attributes:
        roots: the node that each tree begins with.
        features: the feature that a node compares with its number.
        numbers: rows with less go on left, others right; at a leaf what the tree adds.
        left: how many nodes further on the left child is, which the right one follows; 0 at a leaf.
        base: added to the sum.
    """

    roots: NDArray[np.int32]
    features: NDArray[np.uint16]
    numbers: NDArray[np.float32]
    left: NDArray[np.int16]
    base: np.float32

    @staticmethod
    def of(booster: Booster) -> Trees:
        """The trees that XGBoost trained, on numbers without gaps, for one target."""
        learner: dict[str, Any] = json.loads(bytes(booster.save_raw("json")))["learner"]
        trees = learner["gradient_booster"]["model"]["trees"]
        sizes = [len(tree["left_children"]) for tree in trees]
        left = [
            child - node if child >= 0 else 0
            for tree in trees
            for node, child in enumerate(tree["left_children"])
            if _is_followed(child, tree["right_children"][node])
        ]
        return Trees(
            np.cumsum([0, *sizes[:-1]]).astype(np.int32),
            np.concatenate([tree["split_indices"] for tree in trees]).astype(np.uint16),
            np.concatenate([tree["split_conditions"] for tree in trees]).astype(np.float32),
            np.array(left, np.int16),
            # A list since XGBoost 3.1, a number before.
            np.float32(np.ravel(json.loads(learner["learner_model_param"]["base_score"]))[0]),
        )

    def predict(self, rows: NDArray[np.float64]) -> NDArray[np.float32]:
        """The sums for rows of features, of shape (rows, features)."""
        count, width = rows.shape
        flat, lines = rows.astype(np.float32).ravel(), np.arange(0, count * width, width)[:, None]
        nodes = np.repeat(self.roots[None].astype(np.intp), count, axis=0)
        for _ in range(self._depth):
            is_right = flat.take(self._features.take(nodes) + lines) >= self._limits.take(nodes)
            nodes += self._left.take(nodes)
            nodes += is_right
        summands = self.numbers.take(nodes)
        summands[:, 0] += self.base
        # One after the other in this type, as XGBoost adds them.
        return np.add.accumulate(summands, axis=1)[:, -1]

    @cached_property
    def _left(self) -> NDArray[np.intp]:
        return self.left.astype(np.intp)

    @cached_property
    def _features(self) -> NDArray[np.intp]:
        return self.features.astype(np.intp)

    @cached_property
    def _limits(self) -> NDArray[np.float32]:
        """As ``numbers``; infinite at leaves, where rows stay."""
        return np.where(self.left > 0, self.numbers, np.float32(np.inf)).astype(np.float32)

    @cached_property
    def _depth(self) -> int:
        """How many nodes a row passes at most."""
        nodes, depth = self.roots, 0
        while (nodes := nodes[self.left[nodes] > 0]).size:
            nodes = nodes + self._left[nodes]
            nodes, depth = np.concatenate([nodes, nodes + 1]), depth + 1
        return depth


def _is_followed(left: int, right: int) -> bool:
    """True, as XGBoost makes both children at once.

    Raises:
        ValueError: if the right child does not follow the left one.
    """
    if left >= 0 and right != left + 1:
        raise ValueError(f"node {right} does not follow node {left}")
    return True
