"""Windows that slide over an image, by the loops of the op that reads them."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from sartor.codegen.ir.sizes.dims import Extent
from sartor.codegen.mlir.iree_compiler import ir

_POSITION = re.compile(r"d(\d+)(?: \* (\d+))? \+ d(\d+)(?: \* (\d+))?")


@dataclass(frozen=True)
class WindowLoops:
    """Where a window reads along one dimension: a stride for each step of one loop, a dilation for each of another.

    Attributes:
        moved: the loop over windows.
        stride: what it steps by.
        reduced: the loop within a window.
        dilation: what that steps by.
    """

    moved: int
    stride: int
    reduced: int
    dilation: int

    @staticmethod
    def of(expression: ir.AffineExpr, inner: Collection[int]) -> WindowLoops | None:
        """The window that reads at an index, of loops of which the ``inner`` ones are within windows; None if it is no
        window."""
        match = _POSITION.fullmatch(str(expression))
        if match is None:
            return None
        terms = [(int(match[1]), int(match[2] or 1)), (int(match[3]), int(match[4] or 1))]
        terms.sort(key=lambda term: term[0] in inner)
        is_inner = [loop in inner for loop, _ in terms]
        return WindowLoops(*terms[0], *terms[1]) if is_inner == [False, True] else None

    def count(self, size: Extent, kernel: int) -> Extent:
        """How many windows of ``kernel`` elements fit into a size."""
        return size.plus(self.stride - 1 - (kernel - 1) * self.dilation).over(self.stride)
