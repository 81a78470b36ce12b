"""Comparisons of tree nodes, all written as ``feature <= threshold``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Comparison:
    """A node as an operator has it.

    Attributes:
        mode: ``LEQ``, ``LT``, ``GTE``, ``GT``, ``EQ``, ``NEQ`` or ``MEMBER``.
        feature: index of what it compares.
        threshold: what it is compared with; of ``MEMBER`` not used.
        nan_is_true: whether features that are not a number go on as if it held.
        when_true, when_false: the nodes that follow.
        members: of ``MEMBER``, what the feature may be equal to.
    """

    mode: str
    feature: int
    threshold: Any
    nan_is_true: bool
    when_true: int
    when_false: int
    members: tuple[Any, ...] = ()


@dataclass
class Nodes:
    """Nodes in the one form; those that another form takes several of get places behind all others."""

    rows: dict[int, Comparison] = field(default_factory=dict)
    following: int = 0

    def add(self, place: int, node: Comparison) -> None:
        """Add a node at its place, and what it needs behind all others."""
        if node.mode == "LEQ":
            self.rows[place] = node
        elif node.mode == "LT":
            # NaN compares as false in both.
            self.rows[place] = replace(node, mode="LEQ", threshold=_below(node.threshold))
        elif node.mode in _OPPOSITES:
            self.add(place, _opposite(node))
        elif node.mode == "EQ":
            self._add_equal(place, node)
        else:
            self._add_members(place, node)

    def _place(self) -> int:
        self.following += 1
        return self.following - 1

    def _add_equal(self, place: int, node: Comparison) -> None:
        """What is at most the threshold, and is not below it."""
        inner = self._place()
        self.add(place, replace(node, mode="LEQ", when_true=inner))
        below = replace(node, mode="LT", nan_is_true=False, when_true=node.when_false, when_false=node.when_true)
        self.add(inner, below)

    def _add_members(self, place: int, node: Comparison) -> None:
        """One comparison after the other; a node without members never holds."""
        if not node.members:
            self.rows[place] = replace(node, mode="LEQ", threshold=type(node.threshold)(np.nan))
        for index, member in enumerate(node.members):
            is_last = index + 1 == len(node.members)
            following = node.when_false if is_last else self._place()
            self.add(place, replace(node, mode="EQ", threshold=member, when_false=following, members=()))
            place = following


_OPPOSITES = {"GTE": "LT", "GT": "LEQ", "NEQ": "EQ"}


def _opposite(node: Comparison) -> Comparison:
    # NaN is unequal to each number.
    is_true = node.nan_is_true or node.mode == "NEQ"
    return replace(
        node,
        mode=_OPPOSITES[node.mode],
        nan_is_true=not is_true,
        when_true=node.when_false,
        when_false=node.when_true,
    )


def _below(threshold: Any) -> Any:
    """The largest number of its type below a threshold; below all numbers is what nothing is at most.

    Subnormal constants are set to zero later, so that below zero is the first number that is not one.
    """
    dtype = type(threshold)
    if np.isneginf(threshold):
        return dtype(np.nan)
    least = np.finfo(dtype).tiny
    return -least if abs(threshold) < least else np.nextafter(threshold, dtype(-np.inf))
