"""Partition of work over workgroups, in shares that become smaller, so that all threads end together.

IREE's workers take the next workgroup when they have finished one. With equal shares, threads wait for up to the time
of one share at the end, and a thread that waits for more than 10 µs sleeps, which costs as much again to wake it.
Shares that shrink linearly (Tzen and Ni, Trapezoid Self-Scheduling, 1993) end with small ones at little cost for the
rest.
"""

from __future__ import annotations

from itertools import pairwise

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index

# With this many workgroups per worker, or more, IREE's workers take eight at a time.
_SINGLY_TAKEN = 8
# One thread gets shares too: what a share reads stays in the cache, and the code may run with more threads.
_LEAST_THREADS = 2


class PartitionedKernel:
    """A kernel whose workgroups partition its work in one dimension."""

    workgroups: int

    @property
    def groups(self) -> tuple[int, int, int]:
        """Number of workgroups in each dimension; some may have nothing to do."""
        return self.workgroups, 1, 1


def workgroup_range(asm: Assembler, extent: Index, workgroups: int, index: Index) -> tuple[Index, Index]:
    """First and end of a workgroup's share of ``range(extent)``."""
    return _cut(asm, extent, workgroups, index), _cut(asm, extent, workgroups, asm.add(index, 1))


def _cut(asm: Assembler, extent: Index, workgroups: int, index: Index) -> Index:
    """Where a share begins: the work left is proportional to the square of the number of shares left.

    On a GPU shares are equal: many more run at once, and squares would not fit the 32 bits of its indices.
    """
    if asm.equal_shares:
        return asm.divide(asm.times(index, extent), workgroups)[0]
    left = asm.sub(workgroups, index)
    rest = asm.times(asm.times(left, left), extent)
    return asm.sub(extent, asm.divide(asm.add(rest, workgroups**2 - 1), workgroups**2)[0])


def largest_range(extent: int, workgroups: int) -> int:
    """Length of the longest share, which is not always the first because of rounding."""
    return max(_lengths(extent, workgroups))


def smallest_range(extent: int, workgroups: int) -> int:
    """Length of the shortest share."""
    return min(_lengths(extent, workgroups))


def _lengths(extent: int, workgroups: int) -> list[int]:
    cuts = [extent - -(-((workgroups - index) ** 2) * extent // workgroups**2) for index in range(workgroups + 1)]
    return [end - first for first, end in pairwise(cuts)]


def many_workgroups(extent: int, threads: int) -> int:
    """Return the number of shares of ``range(extent)`` that keep ``threads`` threads busy to the end."""
    return min(extent, (_SINGLY_TAKEN - 1) * max(threads, _LEAST_THREADS))


def many_workgroups_of_two(first: int, second: int, threads: int) -> tuple[int, int]:
    """Return the numbers of shares of two extents that keep ``threads`` threads busy to the end.

    The second extent is partitioned only if the first is too small.
    """
    workgroups = many_workgroups(first, threads)
    wanted = many_workgroups(first * second, threads)
    return workgroups, min(second, wanted // workgroups)


def long_workgroups(extent: int, threads: int) -> int:
    """Return the number of shares for work with an initial cost per share: two shares for each thread.

    Lengths shrink linearly, so the first and the last share together are as long as the second and the last but one.
    """
    return min(extent, 2 * max(threads, _LEAST_THREADS))
