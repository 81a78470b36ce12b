"""MLIR of a dispatch without its computation: workgroup indices, loads of operands, and a store."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.lowerings.slices import Slice
from sartor.codegen.mlir.snippet import tensor_type

LOADS = "iree_tensor_ext.dispatch.tensor.load"
STORE = "iree_tensor_ext.dispatch.tensor.store"


@dataclass(frozen=True)
class Operand:
    """A tensor and the part of it that one workgroup takes.

    Attributes:
        shape: shape of the tensor.
        element: its element type.
        part: the slice that a workgroup takes, without the leading dimension of panels if there is one.
        panel: dimension of the result that the tensor's first dimension, of panels, follows; None if it has no panels.
    """

    shape: tuple[int, ...]
    element: str
    part: Slice
    panel: int | None = None

    @property
    def tensor(self) -> str:
        """Type of the tensor."""
        return tensor_type(self.shape, self.element)

    @property
    def tile(self) -> str:
        """Type of the slice."""
        return tensor_type(self.part.sizes, self.element)


@dataclass(frozen=True)
class Grid:
    """Workgroups per dimension of the result; the last dimension varies slowest, so that weights are reused."""

    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        """Number of workgroups."""
        return math.prod(self.counts)

    def index(self, dimension: int) -> str:
        """Position along a result dimension, from the workgroup number ``d0``."""
        *outer, last = range(len(self.counts))
        faster = outer if dimension == last else outer[dimension + 1 :]
        stride = math.prod(self.counts[axis] for axis in faster)
        return f"((d0 floordiv {stride}) mod {self.counts[dimension]})"


def dispatch_text(operands: Sequence[Operand], result: Operand, grid: Grid) -> str:
    """A function of the operands that returns the result of a dispatch, which stores an empty tensor."""
    arguments = ", ".join(f"%arg{index}: {operand.tensor}" for index, operand in enumerate(operands))
    names = ", ".join(f"%arg{index}" for index in range(len(operands)))
    types = ", ".join(operand.tensor for operand in operands)
    blocks = [f"%in{index}: {_reference('readonly', operand)}" for index, operand in enumerate(operands)]
    blocks.append(f"%out: {_reference('writeonly', result)}")
    lines = [line for index, operand in enumerate(operands) for line in _load(index, operand, grid)]
    return "\n".join(
        [
            f"util.func private @dispatch({arguments}) -> {result.tensor} {{",
            f"%count = arith.constant {grid.total} : index",
            f"%r = flow.dispatch.workgroups[%count]({names}) : ({types}) -> {result.tensor} = ({', '.join(blocks)}) {{",
            "%id = flow.dispatch.workgroup.id[0] : index",
            *lines,
            f"%e = tensor.empty() : {result.tile}",
            *_store(result, grid),
            "flow.return",
            "} count(%n: index) -> (index, index, index) {",
            "%one = arith.constant 1 : index",
            "flow.return %n, %one, %one : index, index, index",
            "}",
            f"util.return %r : {result.tensor}",
            "}",
        ]
    )


def _load(index: int, operand: Operand, grid: Grid) -> list[str]:
    lines, part = _part(f"%o{index}", operand, grid)
    reference = _reference("readonly", operand)
    return [*lines, f"%l{index} = {LOADS} %in{index}, {part} : {reference} -> {operand.tile}"]


def _store(result: Operand, grid: Grid) -> list[str]:
    lines, part = _part("%s", result, grid)
    return [*lines, f"{STORE} %e, %out, {part} : {result.tile} -> {_reference('writeonly', result)}"]


def _reference(access: str, operand: Operand) -> str:
    return f"!iree_tensor_ext.dispatch.tensor<{access}:{operand.tensor}>"


def _part(prefix: str, operand: Operand, grid: Grid) -> tuple[list[str], str]:
    """Lines that compute offsets, and the text of offsets, sizes and strides of the slice."""
    offsets, sizes = list(operand.part.offsets), list(operand.part.sizes)
    if operand.panel is not None:
        offsets, sizes = [(operand.panel, 1), *offsets], [1, *sizes]
    lines, names = [], []
    for position, offset in enumerate(offsets):
        if offset is None:
            names.append("0")
            continue
        dimension, factor = offset
        names.append(f"{prefix}_{position}")
        lines.append(f"{names[-1]} = affine.apply affine_map<(d0) -> ({grid.index(dimension)} * {factor})>(%id)")
    strides = [1] * len(sizes)
    return lines, f"offsets = [{', '.join(names)}], sizes = {sizes}, strides = {strides}"
