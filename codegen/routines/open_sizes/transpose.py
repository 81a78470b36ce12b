"""Transposes of images of any height and width on a CPU, by one kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.ir.layer import LayerKind, OpenedTask, Task
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters, Rejected, integer, required
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.layers.kernel_layer import KernelCode
from sartor.codegen.kernels.loops.partition import many_workgroups
from sartor.codegen.kernels.loops.view import view_of
from sartor.codegen.kernels.open_sizes.open_routine import OpenRoutine
from sartor.codegen.kernels.open_sizes.open_transpose import OpenTranspose
from sartor.codegen.kernels.rows.row_form import joined_loops
from sartor.codegen.kernels.windows.costs import CopyCost
from sartor.codegen.mlir.kernel_machine import kernel_machine
from sartor.codegen.mlir.machine import Machine
from sartor.codegen.mlir.operations import body_of
from sartor.codegen.mlir.rewriting.rewrite import Rewrite
from sartor.codegen.mlir.snippet import tensor_parts

# Instructions of a vector that is loaded, and permuted as often as a square of vectors needs.
_INSTRUCTIONS = 3
_RANK = 3


@dataclass(frozen=True)
class OpenTransposeKernel(OpenRoutine):
    """Transposes a few places at a time in registers.

    Parameters: ``groups``, workgroups that partition the places.

    Attributes:
        name: the algorithm in descriptors.
    """

    name: str = "open_transpose"

    @property
    def traits(self) -> Traits:
        return Traits(opens=True, sizes=("groups",), estimate=CopyCost(_INSTRUCTIONS))

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        if task.opened is None or task.kind is not LayerKind.FIXED or task.weights:
            return Rejected("no transpose of open sizes")
        machine = required(kernel_machine(task, target))
        _matrices(task, task.opened.twin)
        blocks = -(-task.results[0].elements // machine.lanes)
        return [{"groups": many_workgroups(blocks, machine.threads)}]

    def code(
        self, task: Task, opened: OpenedTask, parameters: Parameters, machine: Machine
    ) -> tuple[Sequence[Rewrite], KernelCode]:
        (batch, rows, columns), twin = _matrices(task, opened.twin)
        is_to_last = columns == twin[2]
        places, other = (rows, twin[1]) if is_to_last else (columns, twin[2])
        return [Rewrite.plain(task)], OpenTranspose(
            batch=opened.fit.count(batch, twin[0]),
            places=opened.fit.count(places, other),
            channels=columns if is_to_last else rows,
            is_to_last=is_to_last,
            lanes=machine.lanes,
            workgroups=integer(parameters["groups"]),
        )


_Matrices = tuple[int, int, int]


def _matrices(task: Task, twin: Task) -> tuple[_Matrices, _Matrices]:
    """How many matrices there are, and the rows and columns that each has when it is transposed, for both sizes.

    Raises:
        RejectionError: if a task does anything else, or both sides are known only when it runs.
    """
    one, other = matrices_of(task), matrices_of(twin)
    if one[1] != other[1] and one[2] != other[2]:
        raise RejectionError("both sides of a transpose are known only when it runs")
    return one, other


def matrices_of(task: Task) -> _Matrices:
    """The matrices of a task of known sizes."""
    if len(task.inputs) != 1 or len(task.results) != 1 or not task.inputs[0].is_f32:
        raise RejectionError("no transpose of one activation of f32")
    rewrite = Rewrite.plain(task)
    with rewrite.module.context:
        block = body_of(rewrite.function)
        *_, returned = [view.operation for view in block.operations]
        view = view_of(returned.operands[0])
        shape, _ = tensor_parts(returned.operands[0])
    if view.origin != next(iter(block.arguments)) or math.prod(shape) != task.inputs[0].elements:
        raise RejectionError("no transpose of an activation")
    extents, steps = joined_loops(shape, view.strides)
    if len(extents) == _RANK - 1:
        extents, steps = (1, *extents), (math.prod(extents), *steps)
    if len(extents) != _RANK or steps != (extents[1] * extents[2], 1, extents[1]):
        raise RejectionError("no transpose of matrices")
    return extents[0], extents[1], extents[2]
