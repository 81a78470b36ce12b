"""Loops of an attention, and buffers that are read or written along them.

Several heads of queries may share a head of keys and values. Their scores then come as a matrix for each head of keys,
by rows of all its members' queries, which need not be adjacent in memory: each member has a stride of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.ir.sizes.dims import Count
from sartor.codegen.kernels.loops.view import Parts, split_parts, stride_of

_OUTER_JOINED = 3
_ONE: Parts = ((1, 0),)


@dataclass(frozen=True)
class Strided:
    """A buffer that is read or written along batches, heads of keys, their members, and two further loops.

    Attributes:
        memory: position of the buffer.
        steps: distance in elements along each of the five.
    """

    memory: int
    steps: tuple[Count, ...]


@dataclass(frozen=True)
class Loops:
    """Extents of an attention.

    Attributes:
        batches: matrices of scores are by these,
        groups: heads of keys,
        members: heads of queries for each of those,
        queries: of each head,
        keys: and keys.
    """

    batches: int
    groups: int
    members: int
    queries: int
    keys: int

    @staticmethod
    def of(shape: Sequence[int], members: int) -> Loops:
        """Those of scores by batches, heads of keys, members' queries, and keys."""
        batches, groups, rows, keys = shape
        return Loops(batches, groups, members, rows // members, keys)

    @property
    def extents(self) -> tuple[int, int, int, int]:
        """Numbers of batches, heads, queries and keys."""
        return self.batches, self.groups * self.members, self.queries, self.keys

    @property
    def rows(self) -> tuple[int, int, int, int]:
        """The shape of scores by batches, heads of keys, members' queries, and keys."""
        return self.batches, self.groups, self.members * self.queries, self.keys

    def by_queries(self, dims: Sequence[Parts]) -> tuple[int, ...]:
        """Strides of a tensor by batches and heads of keys, which may be joined, rows, and another dimension.

        Raises:
            RejectionError: if they are not constant.
        """
        *outer, rows, last = dims
        apart = split_parts(rows, (self.members, self.queries)) if self.members > 1 else [_ONE, rows]
        return self._strides(outer, apart, last)

    def by_elements(self, dims: Sequence[Parts]) -> tuple[int, ...]:
        """Strides of a tensor that all members share.

        Raises:
            RejectionError: if they are not constant.
        """
        *outer, rows, last = dims
        return self._strides(outer, [_ONE, rows], last)

    def _strides(self, outer: Sequence[Parts], rows: Sequence[Parts], last: Parts) -> tuple[int, ...]:
        apart = split_parts(outer[0], (self.batches, self.groups)) if len(outer) == 1 else outer
        return tuple(map(stride_of, (*apart, *rows, last)))

    def by_heads(self, steps: Sequence[int]) -> tuple[int, ...]:
        """Strides of a tensor by batches and heads, which may be joined, and two other dimensions."""
        *outer, row, last = steps
        if len(steps) == _OUTER_JOINED:
            outer = [self.groups * self.members * outer[0], *outer]
        batch, head = outer
        return batch, head * self.members, head, row, last
