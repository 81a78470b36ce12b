"""Images of any height and width, or other rows, joined along their channels on a CPU, by one kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.ir.layer import OpenedTask, Task
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.sizes.dims import Count, count_of
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters, Rejected, integer, required
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.layers.kernel_layer import KernelCode
from sartor.codegen.kernels.loops.access import Access
from sartor.codegen.kernels.loops.epilogue import Epilogue
from sartor.codegen.kernels.loops.partition import many_workgroups
from sartor.codegen.kernels.open_sizes.open_join import JoinedPart, OpenJoin
from sartor.codegen.kernels.open_sizes.open_routine import OpenRoutine
from sartor.codegen.kernels.open_sizes.window_form import Locating
from sartor.codegen.kernels.windows.costs import CopyCost
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.kernel_machine import kernel_machine
from sartor.codegen.mlir.machine import Machine
from sartor.codegen.mlir.operations import body_of
from sartor.codegen.mlir.rewriting.chain import Chain, followers_of
from sartor.codegen.mlir.rewriting.rewrite import Rewrite
from sartor.codegen.mlir.snippet import tensor_parts

_CONCAT = "tensor.concat"


@dataclass(frozen=True)
class OpenJoinKernel(OpenRoutine):
    """Copies each row's parts one behind the other, with elementwise ops fused.

    Parameters: ``groups``, workgroups that partition the rows.

    Attributes:
        name: the algorithm in descriptors.
    """

    name: str = "open_join"

    @property
    def traits(self) -> Traits:
        return Traits(opens=True, sizes=("groups",), estimate=CopyCost())

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        machine = required(kernel_machine(task, target))
        if task.opened is None:
            return Rejected("its sizes are known")
        check_join(task, machine.lanes)
        return [{"groups": many_workgroups(math.prod(task.results[0].shape[:-1]), machine.threads)}]

    def code(
        self, task: Task, opened: OpenedTask, parameters: Parameters, machine: Machine
    ) -> tuple[Sequence[Rewrite], KernelCode]:
        result = task.results[0]
        rows, groups = count_of((result.dims or result.shape)[:-1]), integer(parameters["groups"])
        rewrite, code = open_join(task, opened.twin, rows, groups, machine.lanes)
        return [rewrite], code


def open_join(task: Task, twin: Task, rows: Count, groups: int, lanes: int) -> tuple[Rewrite, OpenJoin]:
    """The code of a join, and the rewrite that its operations are of.

    Args:
        task: the task.
        twin: the same with other sizes.
        rows: number of rows.
        groups: workgroups that partition them.
        lanes: elements of a vector.

    Raises:
        RejectionError: if there is none.
    """
    (rewrite, parts), (_, other) = (_parts(task_of_part, lanes) for task_of_part in (task, twin))
    if [*map(_described, parts)] != [*map(_described, other)]:
        raise RejectionError("rows are not joined alike for all sizes")
    return rewrite, OpenJoin(parts, rows, lanes, groups)


def check_join(task: Task, lanes: int) -> None:
    """Make sure that a task joins tensors of f32 along their last dimension.

    Raises:
        RejectionError: if it does not.
    """
    if not all(tensor.is_f32 for tensor in (*task.inputs, *task.results)):
        raise RejectionError("its element types are not all f32")
    _parts(task, lanes)


def _described(part: JoinedPart) -> tuple[object, ...]:
    """All that the code of a part depends on."""
    return part.memory, part.channels, part.epilogue.reads, part.result


def _parts(task: Task, lanes: int) -> tuple[Rewrite, tuple[JoinedPart, ...]]:
    """The parts of a task of known sizes, and the rewrite whose ops follow them.

    Raises:
        RejectionError: if it computes anything else.
    """
    rewrite = Rewrite.plain(task)
    with rewrite.module.context:
        block = body_of(rewrite.function)
        arguments, ops = list(block.arguments), [view.operation for view in block.operations]
        joins = [op for op in ops if op.name == _CONCAT]
        if len(joins) != 1 or len(task.results) != 1:
            raise RejectionError("not one join")
        (join,) = joins
        chain = Chain(None, join, followers_of(rewrite.function, join))
        if list(ops[-1].operands) != [chain.result] or not set(join.operands) <= set(arguments):
            raise RejectionError("the layer is not a join and elementwise ops after it")
        shape, _ = tensor_parts(join.results[0])
        if int(ir.IntegerAttr(join.attributes["dim"]).value) != len(shape) - 1:
            raise RejectionError("it joins along another dimension than the last")
        epilogue = Epilogue.of(chain, Locating(arguments, shape, lanes))
        return rewrite, tuple(_each_part(join, arguments, epilogue, lanes))


def _each_part(join: ir.Operation, arguments: list[ir.Value], epilogue: Epilogue, lanes: int) -> list[JoinedPart]:
    result = Access(len(arguments), 0, 0, tensor_parts(join.results[0])[0][-1], lanes)
    first, parts = 0, list[JoinedPart]()
    for operand in join.operands:
        channels = tensor_parts(operand)[0][-1]

        def change(access: Access, first: int = first) -> Access:
            return access.from_channel(first, lanes)

        parts.append(JoinedPart(arguments.index(operand), channels, epilogue.map_accesses(change), change(result)))
        first += channels
    return parts
