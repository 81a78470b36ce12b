"""Sizes that a network computes itself, as the number of frames that durations of sounds add up to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ComputedSize:
    """A symbol whose value is an output of the network, before it is known how long other values are.

    Callers neither give nor get it: inputs that have the size are cut to it.

    Attributes:
        name: of the symbol.
        output: name of the network's output that holds it, int64[1].
        unread: name of an input that is there for the size alone, which nothing reads; empty if there is none.
        node: what computes it in the user's model, as messages name it.
    """

    name: str
    output: str
    unread: str
    node: str
