"""Simulates workers that compute the workgroups of a layer, on cores that may be unequal.

Times are relative: the whole layer takes 1 on a core of speed 1.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from fractions import Fraction

Shares = Sequence[float | Fraction]
"""The fraction of a layer that each workgroup computes, in the order in which workers take them."""


def equal(count: int) -> list[Fraction]:
    """Equal shares."""
    return [Fraction(1, count)] * count


def shrinking(count: int) -> list[Fraction]:
    """Shares that shrink linearly, as kernels have them (``codegen/kernels/loops/partition.py``)."""
    return [Fraction(2 * (count - index) - 1, count**2) for index in range(count)]


def proportional(speeds: Sequence[float]) -> list[float]:
    """A share for each core in proportion to its speed."""
    return [speed / sum(speeds) for speed in speeds]


def taken_in_turn(shares: Shares, speeds: Sequence[float], claim: float = 0.0) -> float:
    """The time until all workgroups are done, if each worker takes the next one when it has finished one.

    Workers that begin together take workgroups in the order of ``speeds``.

    Args:
        shares: of the workgroups.
        speeds: of the cores.
        claim: time to take a workgroup, on every core.
    """
    free = [(0.0, core) for core in range(len(speeds))]
    end = 0.0
    for share in shares:
        begin, core = heapq.heappop(free)
        done = begin + claim + float(share) / speeds[core]
        heapq.heappush(free, (done, core))
        end = max(end, done)
    return end


def given_to_cores(shares: Shares, speeds: Sequence[float], claim: float = 0.0) -> float:
    """The time until all are done, if each core computes the share of its own position, whatever the others do."""
    return max(claim + float(share) / speed for share, speed in zip(shares, speeds, strict=True))
