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
from sartor.codegen.kernels.windows.repetition import repeated_image
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.kernel_machine import kernel_machine
from sartor.codegen.mlir.machine import Machine
from sartor.codegen.mlir.operations import body_of
from sartor.codegen.mlir.rewriting.chain import Chain, followers_of
from sartor.codegen.mlir.rewriting.rewrite import Rewrite
from sartor.codegen.mlir.snippet import tensor_parts

_CONCAT = "tensor.concat"
_COLUMN = -2


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
        rewrite, code = open_join(task, opened, rows, groups, machine.lanes)
        return [rewrite], code


def open_join(task: Task, opened: OpenedTask, rows: Count, groups: int, lanes: int) -> tuple[Rewrite, OpenJoin]:
    """The code of a join, and the rewrite that its operations are of.

    Args:
        task: the task.
        opened: its code for any size, whose twin is the same task with other sizes.
        rows: number of rows.
        groups: workgroups that partition them.
        lanes: elements of a vector.

    Raises:
        RejectionError: if there is none.
    """
    twin = opened.twin
    (rewrite, parts), (_, other) = (_parts(task_of_part, lanes) for task_of_part in (task, twin))
    if [*map(_described, parts)] != [*map(_described, other)]:
        raise RejectionError("rows are not joined alike for all sizes")
    is_enlarged = any(part.repeats != (1, 1) for part in parts)
    across = (
        opened.fit.dim(*(task_of_size.results[0].shape[_COLUMN] for task_of_size in (task, twin)))
        if is_enlarged
        else None
    )
    return rewrite, OpenJoin(parts, rows, lanes, groups, across)


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
    return part.memory, part.channels, part.epilogue.reads, part.result, part.repeats


def _parts(task: Task, lanes: int) -> tuple[Rewrite, tuple[JoinedPart, ...]]:
    """The parts of a task of known sizes, and the rewrite whose ops follow them.

    Raises:
        RejectionError: if it computes anything else.
    """
    rewrite = Rewrite.plain(task)
    with rewrite.module.context:
        block = body_of(rewrite.function)
        arguments, ops = list(block.arguments), [view.operation for view in block.operations]
        joins = [op for op in ops if op.name == _CONCAT] or [op for op in ops if _enlarged(op)]
        if len(joins) != 1 or len(task.results) != 1:
            raise RejectionError("not one join")
        (join,) = joins
        operands = list(join.operands if join.name == _CONCAT else join.results)
        origins = [_origin(operand) for operand in operands]
        chain = Chain(None, join, followers_of(rewrite.function, join))
        if list(ops[-1].operands) != [chain.result] or not {image for image, _ in origins} <= set(arguments):
            raise RejectionError("the layer is not a join and elementwise ops after it")
        shape, _ = tensor_parts(join.results[0])
        if join.name == _CONCAT and int(ir.IntegerAttr(join.attributes["dim"]).value) != len(shape) - 1:
            raise RejectionError("it joins along another dimension than the last")
        epilogue = Epilogue.of(chain, Locating(arguments, shape, lanes))
        return rewrite, tuple(_each_part(origins, shape[-1], arguments, epilogue, lanes))


def _enlarged(op: ir.Operation) -> bool:
    """Whether an operation repeats pixels of an image."""
    return len(op.results) == 1 and _origin(op.results[0])[1] != (1, 1)


def _origin(image: ir.Value) -> tuple[ir.Value, tuple[int, int]]:
    """The image that another one is enlarged from, ``[N, H, W, C]``, and how often its rows and their pixels are
    repeated; the image itself if it is not."""
    repeated = repeated_image(image)
    if repeated is None:
        return image, (1, 1)
    origin, (batch, *sides, channels) = repeated
    return (origin, (sides[0], sides[1])) if batch == channels == 1 else (image, (1, 1))


def _each_part(
    origins: list[tuple[ir.Value, tuple[int, int]]],
    width: int,
    arguments: list[ir.Value],
    epilogue: Epilogue,
    lanes: int,
) -> list[JoinedPart]:
    """The parts of a result with ``width`` channels: images, and how often their pixels are repeated."""
    result = Access(len(arguments), 0, 0, width, lanes)
    first, parts = 0, list[JoinedPart]()
    for image, repeats in origins:
        channels = tensor_parts(image)[0][-1]

        def change(access: Access, first: int = first) -> Access:
            return access.from_channel(first, lanes)

        own = epilogue.map_accesses(change)
        parts.append(JoinedPart(arguments.index(image), channels, own, change(result), repeats))
        first += channels
    return parts
