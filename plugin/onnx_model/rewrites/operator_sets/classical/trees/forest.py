"""Decision trees as arrays of nodes, whatever operator they come from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sartor.onnx_model.graphs.graph import Array


@dataclass(frozen=True)
class Forest:
    """The nodes of all trees. A node goes on to ``when_true`` if its feature is at most its threshold.

    Attributes:
        features: int64 [nodes]; of leaves 0.
        thresholds: float32 or float64 [nodes]; of leaves 0.
        nan_is_true: bool [nodes], where features that are not a number go.
        when_true, when_false: int64 [nodes]; leaves go on to themselves.
        roots: int64 [trees].
        values: [nodes, targets] of the type of the thresholds; zeros but for leaves.
        has_value: bool [nodes, targets], what is given for leaves.
    """

    features: Array
    thresholds: Array
    nan_is_true: Array
    when_true: Array
    when_false: Array
    roots: Array
    values: Array
    has_value: Array

    @property
    def is_leaf(self) -> Array:
        """Of each node."""
        return np.equal(self.when_true, np.arange(len(self.when_true)))

    def depth(self, limit: int) -> int | None:
        """The most comparisons on a way from a root to a leaf; None if these are more than ``limit``."""
        reached = np.unique(self.roots)
        for depth in range(limit + 1):
            reached = reached[~self.is_leaf[reached]]
            if not len(reached):
                return depth
            reached = np.unique(np.concatenate([self.when_true[reached], self.when_false[reached]]))
        return None

    def is_always_given(self, target: int) -> bool:
        """Whether each row arrives at a leaf with a value for a target: all leaves of some tree have one."""
        return any(self._has_all(int(root), target) for root in self.roots)

    def _has_all(self, root: int, target: int) -> bool:
        reached, waiting = set[int](), [root]
        while waiting:
            place = waiting.pop()
            if place not in reached:
                reached.add(place)
                waiting += [int(self.when_true[place]), int(self.when_false[place])]
        leaves = [place for place in sorted(reached) if self.when_true[place] == place]
        return bool(self.has_value[leaves, target].all())
