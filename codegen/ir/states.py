"""States: what a network leaves behind in one call for the next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BEFORE = "sartor.before"
"""The name of the input that a network with caches fills itself: the number of positions before a call, int64[1]."""


@dataclass(frozen=True, eq=False)
class StatePair:
    """An input and an output of a network that are the same storage across calls. Both have one static type.

    Attributes:
        input: position among the network's inputs; it reads what the last call left.
        output: position among its outputs; the next call reads it.
        start: what the first call reads, in ONNX's layout; None for zeros.
    """

    input: int
    output: int
    start: np.ndarray | None = None


@dataclass(frozen=True)
class CachePair:
    """An input that is a cache of all positions so far, new ones included, and an output with the rows of the new ones.

    Both have positions along their first axis. The number of the cache's is known only when it runs.

    Attributes:
        input: position among the network's inputs.
        output: position among its outputs.
    """

    input: int
    output: int
