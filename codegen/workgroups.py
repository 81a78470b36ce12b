"""Dispatches whose split into workgroups is ours.

IREE slices operands where they lie; a dispatch written out can give every workgroup a weight panel of its own, packed
at compile time so that it is read front to back (Goto and van de Geijn, 2008, section 4.2.3; NeoCPU, section III-A).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sartor.codegen.iree_compiler import ir
from sartor.codegen.operations import body_of, indexing_maps, remap, source, used_values
from sartor.codegen.packing import Packing, Reshape, Transpose
from sartor.codegen.region import layer_chain, loop_sizes
from sartor.codegen.snippet import inline, tensor_parts, tensor_type

_READ = "!iree_tensor_ext.dispatch.tensor<readonly:{}>"
_WRITE = "!iree_tensor_ext.dispatch.tensor<writeonly:{}>"
_SCALARS = frozenset({"arith.constant"})


@dataclass(frozen=True)
class Slice:
    """The part of a tensor that one workgroup reads or writes.

    Attributes:
        offsets: per dimension the index of the workgroup along a result dimension and what it is multiplied by.
        sizes: static extents.
        panel: whether the tensor is packed in panels, of which a workgroup takes one.
    """

    offsets: tuple[tuple[int, int] | None, ...]
    sizes: tuple[int, ...]
    panel: int | None = None


@dataclass(frozen=True)
class WorkgroupTiling:
    """Sizes per dimension of the root's result, and per reduction loop.

    Attributes:
        workgroup: part of the result that one workgroup computes; divides the extent.
        register: part of it that is kept in registers.
        reduction: steps of the reduction loops.
        pipeline: name of IREE's CPU pipeline.
        panels: dimension of the result along which weights are packed in panels, if any.
    """

    workgroup: tuple[int, ...]
    register: tuple[int, ...]
    reduction: tuple[int, ...]
    pipeline: str
    panels: int | None = None

    def wrap(self, function: ir.Operation, root: ir.Operation, weights: Mapping[ir.Value, Packing]) -> dict[ir.Value, Packing]:
        """Replace ``root``, its initial value and its followers by one dispatch.

        Args:
            function: changed in place; arguments that become panels get the packed type.
            root: a reduction whose result dimensions are its first loops.
            weights: packings of the arguments so far.

        Returns:
            Packings of the arguments that became panels.

        Raises:
            ValueError: if an op cannot be sliced.
        """
        with function.context, ir.Location.unknown(function.context):
            return _Dispatch(self, function, root, weights).write()
